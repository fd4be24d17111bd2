//! Tests of all systems together, and of each one's own behaviour.

use super::*;
use crate::config::{Config, preset};
use crate::data::augment::Augmenter;
use crate::data::loader::{Loader, Part, View};
use crate::data::{self, Load, Source};

fn plan(system: &str, limit: usize, changes: &[&str]) -> Plan {
    let load = Load { limit: Some(limit), ..Load::new(Source::Bundled) };
    let dataset = Arc::new(data::load(&load, &|_, _| ()).unwrap());
    let mut layers = vec![preset("bundled").unwrap(), preset(system).unwrap()];
    layers.extend(changes.iter().map(|c| crate::config::SettingsLayer::assignment(c).unwrap()));
    let config = Config::from_layers(&layers).unwrap();
    Plan::new(config.resolve(&dataset).unwrap(), dataset).unwrap()
}

fn network(plan: &Plan) -> Network {
    Network::new(&crate::config::NetworkSettings { width: 4, ..plan.config.network.clone() }, 16).unwrap()
}

/// The parts of a batch of eight images, or of four, whose views are all here.
fn share(plan: &Plan, method: &dyn Method) -> BatchShare {
    method.parts(plan, (0, 0), plan.config.train.batch).into()
}

fn alone(n: usize) -> EpochTargets {
    EpochTargets { labels: None, positives: Positives::instances(n), clusterings: Vec::new() }
}

#[test]
fn few_samples_are_compared_with_all_rows_of_the_bank() {
    assert_eq!([0, 1, 50_000, 65_536, 65_537, 1 << 30].map(usual_bank_rows), [0, 0, 0, 0, 16_384, 16_384]);
}

#[test]
fn the_first_batch_has_the_same_pixels_for_all_systems_that_share_the_views() {
    let mut first: Option<Vec<f32>> = None;
    for name in ["pcp", "dc", "pc", "ir", "is", "and", "la", "moco"] {
        let plan = plan(name, 60, &["train.batch=16"]);
        let augmenter =
            Augmenter { size: 16, margin: 1.0, mean: [0.5; 3], std: [0.2; 3], recipe: plan.config.augment.clone() };
        let loader = Loader::new(plan.dataset.clone(), augmenter);
        let batches = of(plan.config.method.system).batches(&plan, (0, 0), &alone(60));
        let view = View::Random(plan.key(Purpose::View, (0, 0)), 0);
        let pixels = loader.batch(Part::Train, &batches[0], &[view]).unwrap().pixels;
        assert_eq!(first.get_or_insert_with(|| pixels.clone()), &pixels, "{name}");
    }
    // DeepCluster draws its own samples, but a sample looks the same to it.
    let (deep, plain) = (plan("deepcluster", 60, &[]), plan("ir", 60, &[]));
    let labels = Some((0..60).map(|i| i % 3).collect());
    let drawn = of(System::Deepcluster).batches(&deep, (0, 0), &EpochTargets { labels, ..alone(60) }).concat();
    let pixels = |plan: &Plan, draw: Draw| {
        let recipe = plan.config.augment.clone();
        let augmenter = Augmenter { size: 16, margin: 1.0, mean: [0.5; 3], std: [0.2; 3], recipe };
        let view = View::Random(plan.key(Purpose::View, (0, 0)), 0);
        Loader::new(plan.dataset.clone(), augmenter).batch(Part::Train, &[draw], &[view]).unwrap().pixels
    };
    let once = Draw { row: drawn[0].row, copy: 0 };
    assert_eq!(pixels(&deep, drawn.iter().copied().find(|d| *d == once).unwrap()), pixels(&plain, once));
    let again = Draw { copy: 1, ..once };
    assert_ne!(pixels(&deep, again), pixels(&plain, once), "its copies have views of their own");
}

#[test]
fn partial_batches_are_left_out_where_the_system_says_so() {
    for (name, whole) in [("ir", false), ("is", true), ("moco", true)] {
        let sizes = |limit: usize| -> Vec<usize> {
            let plan = plan(name, limit, &["train.batch=16"]);
            of(plan.config.method.system).batches(&plan, (0, 0), &alone(limit)).iter().map(Vec::len).collect()
        };
        assert_eq!(sizes(40), if whole { vec![16, 16] } else { vec![16, 16, 8] }, "{name}");
        assert_eq!(sizes(10), [10], "{name}: the only one stays");
    }
}

#[test]
fn the_queue_fits_the_batch_and_the_data() {
    for (settings, expected) in [(["moco.queue=48", "train.batch=16"], 48), (["moco.queue=50", "train.batch=16"], 48)] {
        let plan = plan("moco", 60, &settings);
        assert_eq!(queue(&memory(&plan)).rows.rows, expected);
        assert!(memory(&plan).bank().is_err());
    }
    assert_eq!(queue(&memory(&plan("moco", 10, &["train.batch=16"]))).rows.rows, 10);
}

fn memory(plan: &Plan) -> Memory {
    let net = network(plan);
    of(plan.config.method.system).memory(plan, &net, &net.init(2))
}

fn queue(memory: &Memory) -> &Queue {
    let Memory::Keys { queue, .. } = memory else { panic!("{memory:?} has no queue") };
    queue
}

/// A MoCo step by hand: the key encoder is updated first, encodes view 2, and its keys enter the queue.
#[test]
fn a_moco_step_updates_encodes_and_enqueues() {
    let plan = plan("moco", 20, &["train.batch=8", "moco.momentum=0.75", "moco.groups=1"]);
    let (net, moco) = (network(&plan), of(System::Moco));
    let (weights, keys) = (net.init(1), net.init(2));
    let mut memory = moco.memory(&plan, &net, &keys);
    let mut stream = plan.key(Purpose::Synthetic, (0, 0)).stream(0, 0);
    let pixels: Vec<f32> = (0..16 * 16 * 16 * 3).map(|_| stream.normal()).collect();
    let rows: Vec<usize> = (0..8).collect();
    let dropout = || DropoutKey { key: plan.key(Purpose::Dropout, (0, 0)), ids: (0..8).collect() };
    let batch = Batch { rows: 16, pixels: pixels.clone() };
    let task = Task {
        network: &net,
        weights: &weights,
        batch,
        share: share(&plan, moco),
        rows: &rows,
        dropout: dropout(),
        at: (0, 0),
        number: 0,
    };
    let step = moco.step(&plan, task, &memory, &alone(20)).unwrap();
    let loss = step.loss.loss;
    assert_eq!((loss.samples, loss.instance.1), (8, 8));
    memory.update(&rows, &step.features, step.loss.change).unwrap();
    let Memory::Keys { encoder: next, queue } = memory else { panic!("{memory:?}") };

    let mut slow = keys.clone();
    slow.ema_update(&weights, 0.75);
    let second = Batch { rows: 8, pixels: pixels[pixels.len() / 2..].to_vec() };
    let (expected, moments) = net.encode(&slow, second, 1, dropout());
    slow.update_running_stats(&moments);
    for (a, b) in net.named(&next).iter().zip(&net.named(&slow)) {
        assert!(a.values.iter().zip(&b.values).all(|(x, y)| (x - y).abs() < 1e-4 * y.abs().max(1.0)), "{}", a.name);
    }
    // Batch norm over the whole batch does not depend on the order of rows, up to rounding.
    assert_eq!(queue.next, 8);
    for i in 0..8 {
        assert!(queue.rows.row(i).iter().zip(expected.row(i)).all(|(x, y)| (x - y).abs() < 1e-3), "key {i}");
    }
    // EMA: 3/4 of the old key encoder, 1/4 of the network.
    let (old, new, now) = (&net.named(&keys)[0], &net.named(&weights)[0], &net.named(&next)[0]);
    for i in 0..now.values.len() {
        assert!((now.values[i] - (0.75 * old.values[i] + 0.25 * new.values[i])).abs() < 1e-6);
    }
}

#[test]
fn groups_of_a_moco_batch_have_their_own_statistics() {
    let grouped = plan("moco", 20, &["train.batch=8", "moco.groups=4"]);
    let net = network(&grouped);
    let weights = net.init(1);
    let mut stream = grouped.key(Purpose::Synthetic, (0, 0)).stream(0, 0);
    let pixels: Vec<f32> = (0..16 * 16 * 16 * 3).map(|_| stream.normal()).collect();
    let rows: Vec<usize> = (0..8).collect();
    let run = |plan: &Plan| {
        let dropout = DropoutKey { key: plan.key(Purpose::Dropout, (0, 0)), ids: (0..8).collect() };
        let batch = Batch { rows: 16, pixels: pixels.clone() };
        let task = Task {
            network: &net,
            weights: &weights,
            batch,
            share: share(plan, of(System::Moco)),
            rows: &rows,
            dropout,
            at: (0, 0),
            number: 0,
        };
        of(System::Moco).step(plan, task, &memory(plan), &alone(20)).unwrap().features
    };
    let whole = plan("moco", 20, &["train.batch=8", "moco.groups=1"]);
    // Batches that four groups cannot share evenly are one group.
    let uneven = plan("moco", 20, &["train.batch=8", "moco.groups=3"]);
    assert_ne!(run(&grouped), run(&whole));
    assert_eq!(run(&uneven), run(&whole));
}

#[test]
fn and_keeps_its_neighbourhoods_for_a_round() {
    let plan = plan("and", 40, &["and.share=0.5"]);
    let and = of(System::And);
    let rows = memory(&plan).bank().unwrap().rows.clone().normalised();
    let memory = Memory::Bank(Arc::new(Bank { rows, first: 0, momentum: 0.5 }));
    let history = History::default();
    let targets = |at: At, positives: Option<&Positives>| {
        let past = Past { history: &history, centroids: None, positives };
        and.find_targets(&plan, at, &Matrix::default(), &memory, past, &mut |_| Ok(())).unwrap()
    };
    assert!(targets((0, 3), None).purified.is_none(), "round 0 is instance recognition");
    let first = targets((1, 0), None).purified.unwrap().positives;
    assert_eq!(first.covered(), 20);
    let other = Positives::from_sets(40, [vec![0, 1]]);
    assert_eq!(targets((1, 1), Some(&other)).purified.unwrap().positives, other, "it stays as it is");
    assert_eq!(targets((2, 0), Some(&other)).purified.unwrap().positives.covered(), 40);
}

#[test]
fn supervised_training_needs_labels() {
    let plan = plan("supervised", 20, &[]);
    let mut dataset = (*plan.dataset).clone();
    dataset.train.labels = None;
    let e = Config::from(plan.config).resolve(&dataset).unwrap_err();
    assert!(e.message.contains("no labels") && e.hint.contains("folder per class"), "{e:?}");
}

#[test]
fn la_begins_as_instance_recognition_and_then_unites_clusterings() {
    let plan = plan("la", 60, &["la.clusterings=3", "train.epochs=40", "clusters.floor=5"]);
    let la = of(System::La);
    assert_eq!(la.needed_features(&plan, (0, 1)), None);
    assert!(la.needed_features(&plan, (0, 2)).is_some());
    let mut stream = plan.key(Purpose::Synthetic, (0, 0)).stream(1, 0);
    let features = Matrix::new(8, (0..60 * 8).map(|_| stream.normal()).collect()).normalised();
    let history = History::default();
    let past = Past { history: &history, centroids: None, positives: None };
    let found = la.find_targets(&plan, (0, 2), &features, &memory(&plan), past, &mut |_| Ok(())).unwrap();
    assert_eq!((found.clusterings.len(), found.clusters), (3, 5));
    assert_ne!(found.clusterings[0], found.clusterings[1]);
    assert_eq!(found.labels.as_ref(), Some(&found.clusterings[0]));
}

/// A memory of another kind is an error, not a gradient of zero.
#[test]
fn a_step_without_its_memory_is_an_error() {
    let rows: Vec<usize> = (0..4).collect();
    for system in ["pcp", "ir", "and", "la", "deepcluster", "moco", "supervised"] {
        let plan = plan(system, 8, &["train.batch=4"]);
        let (net, method) = (network(&plan), of(plan.config.method.system));
        let weights = net.init(1);
        let views = method.views(&plan, (0, 0));
        let step = |memory: &Memory| {
            let dropout = DropoutKey { key: plan.key(Purpose::Dropout, (0, 0)), ids: (0..4).collect() };
            let batch = Batch { rows: 4 * views, pixels: vec![0.5; 4 * views * 16 * 16 * 3] };
            let task = Task {
                network: &net,
                weights: &weights,
                batch,
                share: share(&plan, method),
                rows: &rows,
                dropout,
                at: (0, 0),
                number: 0,
            };
            let targets = EpochTargets { labels: Some(vec![0; 8]), ..alone(8) };
            method.step(&plan, task, memory, &targets).map(|step| step.loss.loss)
        };
        assert!(step(&Memory::Nothing).is_err(), "{system}");
        assert!(step(&memory(&plan)).unwrap().total > 0.0, "{system}");
    }
}

/// Images that are held out are in no batch of any epoch, and all others are in the epochs.
#[test]
fn the_network_of_pcp_plus_never_sees_what_is_held_out() {
    let plan = plan("pcp-plus", 100, &["train.batch=16"]);
    let held = plus::held_out(&plan);
    assert_eq!((held.len(), of(System::Plus).steps(&plan)), (5, 5));
    let mut seen = [false; 100];
    for epoch in 0..20 {
        let batches = of(System::Plus).batches(&plan, (0, epoch), &alone(100));
        assert!(batches.len() == 5 && batches.iter().all(|batch| batch.len() == 16));
        batches.iter().flatten().for_each(|draw| seen[draw.row] = true);
    }
    let unseen: Vec<usize> = (0..100).filter(|row| !seen[*row]).collect();
    assert_eq!(unseen, held);
    // Too few to hold any out: all are trained on.
    let few = self::plan("pcp-plus", 10, &["train.batch=16"]);
    assert!(plus::held_out(&few).is_empty());
    assert_eq!(of(System::Plus).batches(&few, (0, 0), &alone(10)).concat().len(), 10);
}

/// A step of PCP+ is instance recognition over a bank that no step changes.
#[test]
fn the_bank_of_pcp_plus_stays_as_it_is() {
    let plan = plan("pcp-plus", 20, &["train.batch=4"]);
    let net = network(&plan);
    let rows = Matrix::new(256, (0..20 * 256).map(|i| (i as f32 * 0.37).sin()).collect()).normalised();
    let bank = Bank { rows, first: 0, momentum: 1.0 };
    let mut memory = Memory::Fixed(Arc::new(bank.clone()));
    let weights = net.init(1);
    let task = |pixels: f32| Task {
        network: &net,
        weights: &weights,
        batch: Batch { rows: 4, pixels: (0..4 * 16 * 16 * 3).map(|i| (i as f32 * pixels).sin()).collect() },
        share: 1.into(),
        rows: &[3, 5, 7, 9],
        dropout: DropoutKey { key: plan.key(Purpose::Dropout, (0, 0)), ids: (0..4).collect() },
        at: (0, 0),
        number: 0,
    };
    let plus = of(System::Plus).step(&plan, task(0.7), &memory, &alone(20)).unwrap();
    let ir = of(System::Ir).step(&plan, task(0.7), &Memory::Bank(Arc::new(bank.clone())), &alone(20)).unwrap();
    assert_eq!((plus.loss.loss, &plus.features), (ir.loss.loss, &ir.features));
    memory.update(&[3, 5, 7, 9], &plus.features, plus.loss.change).unwrap();
    assert_eq!(memory.bank().unwrap(), &bank);
}
