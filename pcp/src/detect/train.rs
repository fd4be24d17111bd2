//! The training loop of a detector, with its checkpoints and records. A run that was stopped or killed goes on with the same bits.

use super::frame::{batches, is_mirrored};
use super::settings::{DetectorSettings, write_detector};
use super::step::{Example, Losses, step};
use super::voc::{Devkit, Item};
use crate::model::{CHECKPOINT_PREFIX, Detector, Optimizer, Weights, named_arrays};
use crate::observe::{Live, Observer};
use crate::run::{About, Bound, CheckpointCard, DetectorEpoch, DetectorResult, RunFolder, Warning, WarningRecord};
use pcp_core::error::{Error, Kind, Result};
use pcp_core::io::tensors::{Array, Tensors};
use pcp_core::rng::{Key, Purpose};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A detector's training, ready to begin.
pub struct DetectorSetup {
    /// The settings.
    pub settings: DetectorSettings,
    /// The network.
    pub detector: Arc<Detector>,
    /// The images.
    pub data: Arc<Devkit>,
    /// The folder.
    pub run: RunFolder,
    /// Program, machine, command and data.
    pub about: About,
    /// Is told what happens, and can cancel it.
    pub observer: Arc<dyn Observer>,
}

/// How far a run is: its position, and totals so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DetectorProgress {
    /// Epochs done.
    pub epoch: u32,
    /// Steps of this epoch done.
    pub batch: usize,
    /// Sums over the epoch's steps: the four losses.
    sums: [f64; 4],
    /// Images of the epoch done.
    images: usize,
    /// Seconds of this epoch, and of all before it.
    epoch_seconds: f64,
    seconds: f64,
    /// Mean loss of the epoch before.
    loss: f64,
}

/// The state between two steps.
#[derive(Clone)]
pub struct DetectorState {
    /// The weights of the network.
    pub weights: Weights,
    optimizer: Optimizer,
    /// Position and totals.
    pub progress: DetectorProgress,
    /// The records of all epochs so far: the lines of `metrics.jsonl`.
    records: Vec<DetectorEpoch>,
}

/// A checkpoint file.
type Card = Tensors<CheckpointCard<DetectorProgress, DetectorEpoch>>;

impl DetectorState {
    /// The state before the first step, with these weights.
    pub fn new(weights: Weights) -> DetectorState {
        let (optimizer, progress) = (Optimizer::new(&weights), DetectorProgress::default());
        DetectorState { optimizer, weights, progress, records: Vec::new() }
    }

    fn save(&self, detector: &Detector, bound: &Bound, path: &Path) -> Result<()> {
        let model = detector.named(&self.weights).into_iter();
        let model = model.map(|n| (format!("{CHECKPOINT_PREFIX}{}", n.name), Array::F32(n.shape, n.values)));
        let velocities = self.optimizer.velocities().into_iter().enumerate();
        let velocities = velocities.map(|(i, v)| (format!("velocity/{i:04}"), Array::F32(vec![v.len()], v)));
        let (bound, records) = (Some(bound.clone()), Some(self.records.clone()));
        let about = CheckpointCard { progress: self.progress, bound, records };
        Tensors { about, arrays: model.chain(velocities).collect() }.write(path)
    }

    /// Reads a checkpoint, and checks that it belongs to `bound`, is complete and fits together. Also returns whether it says what it belongs
    /// to and has the records: earlier versions did not write them.
    fn load(detector: &Detector, settings: &DetectorSettings, bound: &Bound, path: &Path) -> Result<(Self, bool)> {
        let mut file = Card::read(path)?;
        let (then, records) = (file.about.bound.take(), file.about.records.take());
        if let Some(then) = &then {
            then.check(bound, path)?;
        }
        let known = then.is_some() && records.is_some();
        let fits = |right: bool, what: &str| match right {
            true => Ok(()),
            false => {
                Err(Error::file(format!("the checkpoint does not fit together: {what}"), "use the checkpoint before"))
            }
        };
        let weights = detector.from_named(&named_arrays(file.arrays.clone(), CHECKPOINT_PREFIX))?;
        fits(weights.is_finite(), "its weights are not finite")?;
        let mut velocities = Vec::new();
        for (i, expected) in Optimizer::new(&weights).velocities().iter().enumerate() {
            let (_, values) = file.take_f32(&format!("velocity/{i:04}"))?;
            let sound = values.len() == expected.len() && values.iter().all(|x| x.is_finite());
            fits(sound, "its momentum is not that of the network")?;
            velocities.push(values);
        }
        let (progress, records) = (file.about.progress, records.unwrap_or_default());
        let over = progress.epoch == settings.epochs && progress.batch == 0;
        fits(progress.epoch < settings.epochs || over, "its epoch is beyond the last")?;
        fits(!known || records.len() == progress.epoch as usize, "its records are not those of its epochs")?;
        let numbers = progress.sums.iter().chain([&progress.epoch_seconds, &progress.seconds, &progress.loss]);
        fits(numbers.into_iter().all(|x| x.is_finite()), "its sums are not finite")?;
        let optimizer = Optimizer::from_velocities(velocities);
        Ok((DetectorState { weights, optimizer, progress, records }, known))
    }
}

impl DetectorSetup {
    /// The newest checkpoint's state, or `begin`.
    pub fn restore(&self, begin: impl FnOnce() -> Result<DetectorState>) -> Result<DetectorState> {
        let (bound, settings) = (self.bound(), &self.settings);
        let restored = self.run.restore(|path| DetectorState::load(&self.detector, settings, &bound, path))?;
        restored.damaged.into_iter().for_each(|what| self.warn(Warning::DamagedCheckpoint { what }));
        let (mut state, known) = restored.state.map_or_else(|| begin().map(|state| (state, true)), Ok)?;
        if !known {
            self.observer.note(
                "the checkpoint is of an earlier version and does not name its settings: they are taken as they are",
            );
            self.run.cut_metrics(state.progress.epoch as usize)?;
            state.records = if state.progress.epoch > 0 { self.run.read_metrics_as()? } else { Vec::new() };
        }
        if let Some(what) = self.run.restore_metrics(&state.records)? {
            self.warn(Warning::Restored { what });
        }
        Ok(state)
    }

    /// What the checkpoints of the run belong to.
    fn bound(&self) -> Bound {
        Bound::new(self.settings.entries(), &self.about.fingerprint)
    }

    /// Tells a warning to the observer and the run folder.
    pub fn warn(&self, warning: Warning) {
        self.observer.warn(&warning);
        self.run.warn(&WarningRecord { at: None, warning });
    }

    fn save(&self, state: &DetectorState) -> Result<()> {
        if !state.weights.is_finite() {
            return Err(diverged("the weights are not finite".into()));
        }
        let DetectorProgress { epoch, batch, .. } = state.progress;
        let name = format!("e{epoch:05}-b{batch:07}.safetensors");
        state.save(&self.detector, &self.bound(), &self.run.file("checkpoints").join(name))?;
        self.run.keep_newest()
    }
}

fn diverged(message: String) -> Error {
    Error::training(message, "start anew with a lower `lr` (learning rate); checkpoints from before are kept")
}

/// Trains from `state` to the end. When it is cancelled, everything is saved first.
pub fn train(setup: &DetectorSetup, mut state: DetectorState) -> Result<(DetectorState, DetectorResult)> {
    match epochs(setup, &mut state) {
        Ok(outcome) => Ok((state, outcome)),
        Err(e) if e.kind == Kind::Stopped => {
            setup.save(&state)?;
            let DetectorProgress { epoch, batch, .. } = state.progress;
            Err(Error {
                message: format!("stopped in epoch {} after {batch} steps; everything is saved", epoch + 1),
                hint: format!("go on with: `detect_resume` {}", setup.run.path().display()),
                ..e
            })
        }
        Err(e) => Err(e),
    }
}

fn epochs(setup: &DetectorSetup, state: &mut DetectorState) -> Result<DetectorResult> {
    let pause = Duration::from_secs_f64(setup.settings.save_minutes * 60.0);
    let mut saved = Instant::now();
    let images: Vec<(u64, usize, usize)> = setup.data.items.iter().map(|i| (i.id, i.width, i.height)).collect();
    while state.progress.epoch < setup.settings.epochs {
        let epoch = state.progress.epoch;
        let key = Key { purpose: Purpose::Detection, seed: setup.settings.seed, round: 0, epoch };
        setup.observer.begin("training", images.len());
        setup.observer.advance(state.progress.images);
        for rows in batches(key, &images, setup.settings.batch).into_iter().skip(state.progress.batch) {
            learn(setup, state, rows, key)?;
            if saved.elapsed() >= pause {
                setup.save(state)?;
                saved = Instant::now();
            }
        }
        end_epoch(setup, state)?;
        setup.save(state)?;
        saved = Instant::now();
    }
    finish(setup, state)
}

/// One step on the images of `rows`.
fn learn(setup: &DetectorSetup, state: &mut DetectorState, rows: Vec<usize>, key: Key) -> Result<()> {
    let started = Instant::now();
    let (detector, data, weights) = (setup.detector.clone(), setup.data.clone(), state.weights.clone());
    let (preparation, sampling, n) = (setup.settings.preparation(), setup.settings.sampling(), rows.len());
    let (losses, gradients) = setup.observer.cancel().run(move || {
        let example = |item: &Item| {
            let mirror = is_mirrored(key, item.id);
            let frame = preparation.frame(&item.image()?, mirror);
            Ok(Example { id: item.id, truths: frame.truths(&item.truths(), mirror), frame })
        };
        let examples = rows.par_iter().map(|row| example(&data.items[*row])).collect::<Result<Vec<_>>>()?;
        let (losses, [trunk, heads]) = step(&detector, &weights, &examples, &sampling, key);
        Ok::<_, Error>((losses, trunk.with(heads)))
    })??;
    let p = &mut state.progress;
    if !losses.total().is_finite() {
        return Err(diverged(format!("the loss is not finite in epoch {}, step {}", p.epoch + 1, p.batch + 1)));
    }
    let DetectorSettings { momentum, weight_decay, .. } = setup.settings;
    let lr = setup.settings.lr(p.epoch) as f32;
    let sgd = kernels::Sgd { lr, momentum: momentum as f32, decay: weight_decay as f32, nesterov: false };
    state.optimizer.step_some(&mut state.weights, gradients, sgd);
    let all = [losses.objectness, losses.proposals, losses.classes, losses.boxes];
    p.sums.iter_mut().zip(all).for_each(|(sum, loss)| *sum += loss);
    p.batch += 1;
    p.images += n;
    p.epoch_seconds += started.elapsed().as_secs_f64();
    setup.observer.advance(n);
    let loss = means(p).total();
    setup.observer.status(&format!("epoch {}/{}, loss {loss:.3}", p.epoch + 1, setup.settings.epochs));
    setup.observer.live(&Live {
        loss,
        images_per_second: p.images as f64 / p.epoch_seconds.max(1e-9),
        lr,
        clusters: 0,
        kept: 0.0,
    });
    Ok(())
}

fn means(p: &DetectorProgress) -> Losses {
    let [objectness, proposals, classes, boxes] = p.sums.map(|sum| sum / p.batch.max(1) as f64);
    Losses { objectness, proposals, classes, boxes }
}

fn end_epoch(setup: &DetectorSetup, state: &mut DetectorState) -> Result<()> {
    let p = &mut state.progress;
    let losses = means(p);
    let record = DetectorEpoch {
        epoch: p.epoch,
        loss: losses.total(),
        loss_objectness: losses.objectness,
        loss_proposals: losses.proposals,
        loss_classes: losses.classes,
        loss_boxes: losses.boxes,
        lr: setup.settings.lr(p.epoch),
        seconds: p.epoch_seconds,
        images_per_second: p.images as f64 / p.epoch_seconds.max(1e-9),
    };
    setup.run.append_metrics(&record)?;
    setup.observer.note(&record.line(setup.settings.epochs));
    setup.observer.detector_epoch(&record);
    state.records.push(record.clone());
    let p = &mut state.progress;
    let seconds = p.seconds + p.epoch_seconds;
    *p = DetectorProgress { epoch: p.epoch + 1, seconds, loss: record.loss, ..DetectorProgress::default() };
    Ok(())
}

fn finish(setup: &DetectorSetup, state: &DetectorState) -> Result<DetectorResult> {
    let DetectorSetup { settings, detector, run, about, .. } = setup;
    write_detector(run, settings, detector, &state.weights)?;
    let outcome = DetectorResult {
        loss: state.progress.loss,
        images: setup.data.items.len(),
        seconds: state.progress.seconds,
        protocol: settings.summary(),
        command: about.command.clone(),
        seed: settings.seed,
        precision: settings.precision,
        threads: rayon::current_num_threads(),
        version: about.version.clone(),
        revision: about.revision.clone(),
    };
    run.write_result(&outcome)?;
    Ok(outcome)
}
