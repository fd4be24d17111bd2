//! Lines about what a run will do, told before it begins.

use crate::config::System;
use crate::data::Labels;
use crate::observe::Observer;
use crate::train::Setup;
use pcp_core::text::bytes;

/// Tells data, network, system, schedule and memory of a run.
pub(super) fn describe(setup: &Setup, observer: &dyn Observer) {
    let (config, data, network) = (&setup.plan.config, &setup.plan.dataset, &setup.network);
    let count = |labels: &Option<Labels>| labels.as_ref().map(|l| l.classes.len());
    let within = |folder: &Option<String>| folder.as_ref().map(|f| format!(" (in {f}/)")).unwrap_or_default();
    let of_test = within(&data.splits.test);
    let test = data.test.as_ref().map(|t| format!(", {} to test on{of_test}", t.images.len())).unwrap_or_default();
    let use_of = if config.method.system == System::Supervised { "" } else { " (for evaluation only)" };
    let classes = count(&data.train.labels).map(|n| format!(", {n} classes{use_of}")).unwrap_or_default();
    let learn = format!("{} images to learn from{}", data.train.images.len(), within(&data.splits.train));
    observer.note(&format!("data      {}: {learn}{test}{classes}", data.name));
    for (folder, images) in &data.splits.unused {
        observer.note(&format!("          {images} images in {folder} are not used: there are others to test on"));
    }
    if config.method.system == System::Patches {
        observer.note(&format!("system    {}: {}", setup.about.system(), setup.method.describe(&setup.plan)));
        return;
    }
    observer.note(&format!(
        "network   {:?}, width {}, {} px, {:.1} M parameters, {}",
        config.network.arch,
        config.network.width,
        network.size,
        network.parameter_count() as f64 / 1e6,
        network.precision
    ));
    let trains = match config.train.rounds {
        0 => "nothing is trained".to_string(),
        _ => setup.method.describe(&setup.plan),
    };
    observer.note(&format!("system    {}: {trains}", setup.about.system()));
    observer.note(&format!(
        "schedule  {} x {} epochs of {} steps; seed {}",
        config.train.rounds,
        config.train.epochs,
        setup.method.steps(&setup.plan),
        config.train.seed
    ));
    let memory = setup.memory();
    let decoded = data.train.images.decoded_bytes() + data.test.as_ref().map_or(0, |t| t.images.decoded_bytes());
    let images = match data.train.images.held() {
        true => format!("images {}", bytes(memory[0])),
        false => format!("images none ({} decoded, ahead of every step)", bytes(decoded as f64)),
    };
    observer.note(&format!(
        "memory    about {}: {images}, bank and features {} ({} for every image more), network and a step {}; {} threads",
        bytes(memory.iter().sum()),
        bytes(memory[1]),
        bytes(setup.memory_per_image()),
        bytes(memory[2]),
        rayon::current_num_threads()
    ));
}
