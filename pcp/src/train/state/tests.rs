//! Churn, and states that are saved and read back, by one process and by several.

use super::*;
use crate::config::{self, Config};
use crate::method;
use pcp_core::cancel::Cancel;
use pcp_core::peers::Team;
use pcp_core::peers::parts::together;

#[test]
fn churn_counts_changed_partners() {
    // {0, 1}, {2, 3, 4}: renaming clusters changes nothing.
    assert_eq!(churn(&[0, 0, 1, 1, 1], &[7, 7, 3, 3, 3]), 0.0);
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} is not {b}");
    // 4 moves from the second to the first: 0 and 1 keep one of two partners, 2 and 3 one of two, 4 none of four.
    near(churn(&[0, 0, 1, 1, 1], &[0, 0, 1, 1, 0]), 1.0 - (4.0 * 0.5) / 5.0);
    // {0, 1} stays; {2, 3, 4} splits into {2, 3}, which keep one of two, and 4, which loses both.
    near(churn(&[0, 0, 1, 1, 1], &[0, 0, 1, 1, 2]), 1.0 - (2.0 + 2.0 * 0.5) / 5.0);
    assert_eq!(churn(&[], &[]), 0.0);
    // Alone before and now is no change; two that meet have lost what they had, nothing, and share nothing.
    near(churn(&[0, 1, 2, 2], &[5, 5, 6, 6]), 0.5);
    assert_eq!(churn(&[0, 1, 2], &[2, 0, 1]), 0.0);
}

/// What the state is bound to.
fn bound() -> Bound {
    Bound::new([("train.seed".to_string(), 0.into())], "images")
}

/// A state of `system` with something in every part.
pub(in crate::train) fn state(system: &str) -> (Network, Plan, State) {
    let set = |text: &str| config::SettingsLayer::assignment(text).unwrap();
    let layers = [config::preset(system).unwrap(), set("clusters.floor=3"), set("train.batch=1")];
    let config = Config::from_layers(&layers).unwrap();
    let network = Network::new(&config::NetworkSettings { width: 4, ..config.network.clone() }, 16).unwrap();
    let load = crate::data::Load { limit: Some(5), ..crate::data::Load::new(crate::data::Source::Bundled) };
    let dataset = Arc::new(crate::data::load(&load, &|_, _| ()).unwrap());
    let plan = Plan::new(config.resolve(&dataset).unwrap(), dataset).unwrap();
    let mut state = State::new(&network, network.init(0), method::of(plan.config.method.system), &plan);
    state.history.push(vec![0, 1, 1, 0, 2], 3);
    state.history.push(vec![1, 1, 1, 0, 2], 3);
    let method = method::of(plan.config.method.system);
    let tap = method.needed_features(&plan, (0, 0)).map_or(method.tap(), |needed| needed.tap);
    let dim = network.dim(tap);
    state.centroids = Some(Matrix::new(dim, (0..2 * dim).map(|i| i as f32 - 0.25).collect()));
    state.progress.batch = 3;
    state.progress.sums.total = 0.1 + 0.2;
    state.progress.best = Some((1.0 / 3.0, 0));
    state.progress.counts = Counts { clusters: 3, churn: Some(0.4), ..Counts::default() };
    let positives = Positives::from_sets(5, [vec![1, 2]]);
    let targets = EpochTargets { labels: Some(vec![0, 1, 1, 2, 2]), positives, clusterings: Vec::new() };
    state.previous = Some(Arc::new(EpochTargets { labels: None, ..targets.clone() }));
    state.targets = Some(Arc::new(EpochTargets { clusterings: vec![vec![1; 5], vec![2; 5]], ..targets }));
    if let Memory::Fixed(bank) = &mut state.memory {
        Arc::make_mut(bank).rows = Matrix::new(256, vec![0.25; 5 * 256]);
    }
    if let Memory::Average(average) = &mut state.memory {
        *average = network.init(9);
    }
    if let Memory::Keys { encoder, queue } = &mut state.memory {
        *encoder = network.init(9);
        Arc::make_mut(queue).push(&Matrix::new(128, vec![0.5; 128]));
    }
    (network, plan, state)
}

#[test]
fn a_state_comes_back_bit_for_bit() {
    for system in ["pcp", "is", "moco", "deepcluster", "simclr", "byol", "emp", "pcp-plus", "supervised"] {
        let (network, plan, state) = state(system);
        let method = method::of(plan.config.method.system);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        state.save(&network, &plan, &bound(), &path).unwrap();
        let (back, known) = State::load(&network, method, &plan, &bound(), &path).unwrap();
        assert!(known);
        let queue_next = u32::from(system == "moco") as usize;
        assert_eq!(back.progress, RunProgress { queue_next, ..state.progress.clone() });
        assert_eq!((&back.targets, &back.centroids), (&state.targets, &state.centroids));
        assert_eq!((&back.history, &back.previous), (&state.history, &state.previous));
        assert_eq!(network.named(&back.weights), network.named(&state.weights));
        match (&back.memory, &state.memory) {
            (Memory::Nothing, Memory::Nothing) => {}
            (Memory::Bank(a), Memory::Bank(b)) | (Memory::Fixed(a), Memory::Fixed(b)) => assert_eq!(a, b),
            (Memory::Classifier(a), Memory::Classifier(b)) => assert_eq!(a, b),
            (Memory::Average(a), Memory::Average(b)) => assert_eq!(network.named(a), network.named(b)),
            (Memory::Keys { encoder: a, queue }, Memory::Keys { encoder: b, queue: other }) => {
                assert_eq!((network.named(a), queue), (network.named(b), other));
            }
            (other, _) => panic!("{system} came back with {other:?}"),
        }
        assert_eq!(back.optimizer.velocities(), state.optimizer.velocities());
        let again = dir.path().join("again");
        back.save(&network, &plan, &bound(), &again).unwrap();
        assert_eq!(std::fs::read(path).unwrap(), std::fs::read(again).unwrap(), "{system}");
    }
}

#[test]
fn a_checkpoint_without_its_memory_is_refused() {
    for (system, array) in
        [("pcp", "bank"), ("moco", "queue"), ("byol", "average/fc.0.weight"), ("deepcluster", "classifier/weight")]
    {
        let (network, plan, mut state) = state(system);
        let method = method::of(plan.config.method.system);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        let save_without = |state: &State| {
            state.save(&network, &plan, &bound(), &path).unwrap();
            let mut file = Card::read(&path).unwrap();
            file.arrays.remove(array).unwrap();
            file.write(&path).unwrap();
        };
        save_without(&state);
        let load = || State::load(&network, method, &plan, &bound(), &path).map(|_| ());
        let e = load().unwrap_err();
        // Weights are named without the network that has them.
        assert!(e.message.contains(array.trim_start_matches("average/")), "{system}: {e:?}");
        // Stopped before its first clustering by an earlier version.
        state.progress.batch = 0;
        state.targets = None;
        save_without(&state);
        assert_eq!(load().is_ok(), system == "deepcluster", "{system}");
    }
}

/// What processes save together is what one saves, byte for byte, and others go on with it: each has its rows of the bank.
#[test]
fn any_number_of_processes_saves_and_reads_the_same_file() {
    for system in ["pcp", "ir", "la", "moco", "simclr"] {
        let (network, plan, alone) = state(system);
        let method = method::of(plan.config.method.system);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("alone");
        alone.save(&network, &plan, &bound(), &path).unwrap();
        let written = std::fs::read(&path).unwrap();
        // Seven are more than there are images.
        for (before, later) in [(1, 4), (4, 2), (2, 7), (7, 1)] {
            for (count, path, to) in
                [(before, &path, dir.path().join("first")), (later, &dir.path().join("first"), dir.path().join("then"))]
            {
                let found = together(count, |peers| {
                    let mut dataset = (*plan.dataset).clone();
                    dataset.team = Team::new(peers, Cancel::default());
                    let plan = Plan { dataset: Arc::new(dataset), ..plan.clone() };
                    let (state, _) = State::load(&network, method, &plan, &bound(), path).unwrap();
                    state.save(&network, &plan, &bound(), &to).unwrap();
                    state.memory.bank().map_or(0, |bank| bank.rows.rows)
                });
                assert_eq!(found.iter().sum::<usize>(), if alone.memory.bank().is_ok() { 5 } else { 0 });
                assert!(found.iter().all(|rows| *rows <= 5usize.div_ceil(count)), "{found:?}");
                assert!(std::fs::read(&to).unwrap() == written, "{system}, {count} processes");
            }
        }
    }
}
