"""Reads a run's event files as TensorBoard does and holds them against metrics.jsonl. Argument: the run folder."""

import json
import sys
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

run = Path(sys.argv[1])
metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0, "histograms": 0})
events.Reload()
tags = events.Tags()
names = {
    "loss/total": "loss",
    "lr": "lr",
    "clusters/K": "clusters",
    "clusters/not_empty": "non_empty",
    "clusters/kept": "kept",
    "clusters/pulled_back": "pulled_back",
    "clusters/dropped": "dropped",
    "clusters/instances": "instances",
    "clusters/churn": "churn",
    "loss/instances": "loss_instance",
    "loss/clusters": "loss_cluster",
    "loss/warm_up": "loss_is",
    "accuracy/kNN": "knn",
}
for tag, key in names.items():
    truth = [(i + 1, m[key]) for i, m in enumerate(metrics) if m.get(key) is not None]
    found = [(e.step, e.value) for e in events.Scalars(tag)]
    assert [s for s, _ in found] == [s for s, _ in truth], (tag, found, truth)
    assert all(abs(a - b) <= 1e-6 * max(1.0, abs(b)) for (_, a), (_, b) in zip(found, truth)), tag
sizes = events.Histograms("clusters/sizes")
for e in sizes:
    record, h = metrics[e.step - 1], e.histogram_value
    assert h.num == record["clusters"] and sum(h.bucket) == h.num, e.step
    assert h.sum == 120 and list(h.bucket_limit) == sorted(h.bucket_limit), e.step
assert len(sizes) >= len(metrics) - 2, "only epochs of instances have no sizes"
print(f"TensorBoard reads {len(tags['scalars'])} curves of {len(metrics)} epochs and {len(sizes)} histograms")
