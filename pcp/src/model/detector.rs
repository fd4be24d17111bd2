//! The network of a detector (Ren et al. 2015, the C4 form): a ResNet18 up to its third stage, a small network that proposes
//! boxes on its map, and the fourth stage with two heads that classify and refine boxes.
//!
//! Stem, first stage and all batch norm are frozen. The steps between the two parts (proposals, sampling, cropping of boxes) do
//! not use tensors: a training step runs the first part ([`Detector::propose_in_training`]), then the second on cropped maps
//! ([`Detector::classify_in_training`]), and computes the gradients of both from those by their outputs.

use super::Model;
use super::layers::{Builder, Convolution, Linear, Pass, convolved, linear};
use super::network::{Maps, to_features};
use super::resnet::{ResNet, large_stem};
use super::weights::{Init, Named, Spec, Weights, to_vec};
use crate::config::{self, Arch, Precision};
use burn::tensor::{Device, Gradients, Tensor, TensorData};
use pcp_core::error::{Error, Result};
use pcp_core::matrix::Matrix;

/// Standard deviation of the initial weights of the new layers, and of the layer for boxes.
const STD: f32 = 0.01;
const STD_BOXES: f32 = 0.001;
/// The stage of the second part; those before it compute the map.
const LAST: usize = 3;

/// The network of a detector, without weights.
#[derive(Clone, Debug)]
pub struct Detector {
    body: ResNet,
    propose: Convolution,
    objectness: Convolution,
    steps: Convolution,
    scores: Linear,
    boxes: Linear,
    parameters: Vec<Spec>,
    buffers: Vec<Spec>,
    precision: Precision,
    /// Which parameters are trained.
    learns: Vec<bool>,
    /// Channels of the map.
    pub channels: usize,
}

/// Images of one size as input of the network, in height, width, channel order, normalised.
#[derive(Clone, Debug, Default)]
pub struct Frames {
    /// How many.
    pub rows: usize,
    /// Their height.
    pub height: usize,
    /// Their width.
    pub width: usize,
    /// `rows * height * width * 3` values.
    pub pixels: Vec<f32>,
}

/// The output of the first part of the network, for every cell of its map.
#[derive(Clone, Debug)]
pub struct ProposalMaps {
    /// The map.
    pub maps: Maps,
    /// Logits of being an object, `[rows][height][width][anchors]`.
    pub objectness: Vec<f32>,
    /// Offsets from the anchors to the objects, `[rows][height][width][anchors][4]`.
    pub steps: Vec<f32>,
}

/// The first part of a training step.
pub struct ProposalPass<'a> {
    /// Its output.
    pub seen: ProposalMaps,
    pass: Pass<'a>,
    maps: Tensor<4>,
    objectness: Tensor<4>,
    steps: Tensor<4>,
}

/// The second part of a training step.
pub struct CropPass<'a> {
    /// Logits of every box: background, then the classes.
    pub scores: Matrix,
    /// Offsets from every box to the object, four for each class.
    pub boxes: Matrix,
    pass: Pass<'a>,
    crops: Tensor<4>,
    outputs: [Tensor<2>; 2],
}

/// Gradients of some of the parameters.
pub struct PartialGradients(Vec<Option<Tensor<1>>>);

impl PartialGradients {
    /// The gradients of both parts, which have no parameter in common.
    pub fn with(self, other: PartialGradients) -> Vec<Option<Tensor<1>>> {
        self.0.into_iter().zip(other.0).map(|(a, b)| a.or(b)).collect()
    }
}

impl Detector {
    /// The detector on the network of `config`, which was trained on images of `size` px, for `classes` classes and `anchors` anchors per cell.
    pub fn new(config: &config::NetworkSettings, size: usize, classes: usize, anchors: usize) -> Result<Detector> {
        if config.arch != Arch::Resnet18 {
            return Err(Error::usage(
                format!("a detector cannot be built on {:?}", config.arch),
                "use the weights of a resnet18",
            ));
        }
        let mut build = Builder::default();
        let (body, pooled) = ResNet::new(&mut build, config.width, large_stem(config.stem, size));
        let (channels, inner) = (4 * config.width, 8 * config.width);
        let (init, small) = (Init::Normal(STD), Init::Normal(STD_BOXES));
        let propose = build.convolution("rpn.head.conv.0.0", [inner, channels, 3, 3], true, init);
        let objectness = build.convolution("rpn.head.cls_logits", [anchors, inner, 1, 1], false, init);
        let steps = build.convolution("rpn.head.bbox_pred", [4 * anchors, inner, 1, 1], false, init);
        let scores = build.linear("roi_heads.box_predictor.cls_score", pooled, classes + 1, init);
        let boxes = build.linear("roi_heads.box_predictor.bbox_pred", pooled, 4 * classes, small);
        let Builder { parameters, buffers } = build;
        // Convolutions from the second stage on, and everything new: all but stem, first stage and batch norm.
        let frozen = |name: &str| {
            let norm = name.contains("bn") || name.contains("downsample.1");
            norm || name.starts_with("conv1.") || name.starts_with("layer1.")
        };
        let learns = parameters.iter().map(|p| !frozen(&p.name)).collect();
        let body = body.halving();
        let precision = Precision::F32;
        Ok(Detector {
            body,
            propose,
            objectness,
            steps,
            scores,
            boxes,
            parameters,
            buffers,
            precision,
            learns,
            channels,
        })
    }

    /// The detector with layers that compute in `precision`. What they give is f32, and so are the layers after the last map.
    pub fn with_precision(self, precision: Precision) -> Detector {
        Detector { precision, ..self }
    }

    /// Initial weights, a function of the seed alone.
    pub fn init(&self, seed: u64) -> Weights {
        Weights::init(&self.parameters, &self.buffers, seed)
    }

    /// Initial weights: new layers from the seed, the others from `backbone`, or also from the seed if that is untrained.
    pub fn init_on(&self, backbone: &Model, seed: u64) -> Result<Weights> {
        match backbone.file {
            Some(_) => self.init_with(&backbone.network.named(&backbone.weights), seed),
            None => Ok(self.init(seed)),
        }
    }

    fn init_with(&self, backbone: &[Named], seed: u64) -> Result<Weights> {
        let weights = self.init(seed);
        let own = |name: &str| name.starts_with("rpn.") || name.starts_with("roi_heads.");
        let new = self.named(&weights).into_iter().filter(|n| own(&n.name));
        let all: Vec<Named> = new.chain(backbone.iter().filter(|n| !own(&n.name)).cloned()).collect();
        self.from_named(&all)
    }

    /// The weights as named arrays.
    pub fn named(&self, weights: &Weights) -> Vec<Named> {
        weights.named(&self.parameters, &self.buffers)
    }

    /// The reverse of [`named`](Self::named).
    pub fn from_named(&self, named: &[Named]) -> Result<Weights> {
        Weights::from_named(&self.parameters, &self.buffers, named)
    }

    /// Number of trained parameters.
    pub fn learning(&self) -> usize {
        self.parameters.iter().zip(&self.learns).filter(|(_, learns)| **learns).map(|(p, _)| p.len()).sum()
    }

    /// The map after the frozen stages.
    fn early(&self, weights: &Weights, frames: Frames) -> Tensor<4> {
        let data = TensorData::new(frames.pixels, [frames.rows, frames.height, frames.width, 3]);
        let pass = Pass::inference(weights);
        let x = kernels::cast(Tensor::from_data(data, &Device::flex()), self.precision);
        let x = self.body.stem(&pass, x);
        self.body.stage(&pass, 0, x)
    }

    fn proposing(&self, pass: &Pass, x: Tensor<4>) -> [Tensor<4>; 3] {
        let maps = (1..LAST).fold(x, |x, stage| self.body.stage(pass, stage, x));
        let f32 = |x| kernels::cast(x, Precision::F32);
        let inner = f32(convolved(pass, &self.propose, maps.clone()));
        let objectness = convolved(pass, &self.objectness, inner.clone());
        let steps = convolved(pass, &self.steps, inner);
        [f32(maps), objectness, steps]
    }

    fn judging(&self, pass: &Pass, crops: Tensor<4>) -> [Tensor<2>; 2] {
        let crops = kernels::cast(crops, self.precision);
        let pooled = kernels::mean_pool(self.body.stage(pass, LAST, crops));
        [linear(pass, &self.scores, pooled.clone()), linear(pass, &self.boxes, pooled)]
    }

    /// Inference: the first part.
    pub fn propose(&self, weights: &Weights, frames: Frames) -> ProposalMaps {
        let x = self.early(weights, frames);
        seen(self.proposing(&Pass::inference(weights), x))
    }

    /// Inference: the second part, on cropped maps of `side` x `side` cells; scores and boxes.
    pub fn classify(&self, weights: &Weights, crops: Vec<f32>, side: usize) -> [Matrix; 2] {
        let crops = self.crops(crops, side);
        self.judging(&Pass::inference(weights), crops).map(to_features)
    }

    /// Training: the first part.
    pub fn propose_in_training<'a>(&self, weights: &'a Weights, frames: Frames) -> ProposalPass<'a> {
        let x = Tensor::from_inner(self.early(weights, frames));
        let pass = Pass::fine_tuning(weights, &self.learns);
        let [maps, objectness, steps] = self.proposing(&pass, x);
        let seen = seen([maps.clone(), objectness.clone(), steps.clone()].map(Tensor::inner));
        ProposalPass { seen, pass, maps, objectness, steps }
    }

    /// Training: the second part, on cropped maps of `side` x `side` cells.
    pub fn classify_in_training<'a>(&self, weights: &'a Weights, crops: Vec<f32>, side: usize) -> CropPass<'a> {
        let pass = Pass::fine_tuning(weights, &self.learns);
        let crops = Tensor::from_inner(self.crops(crops, side)).require_grad();
        let outputs = self.judging(&pass, crops.clone());
        let [scores, boxes] = outputs.clone().map(|t| to_features(t.inner()));
        CropPass { scores, boxes, pass, crops, outputs }
    }

    fn crops(&self, crops: Vec<f32>, side: usize) -> Tensor<4> {
        let rows = crops.len() / (side * side * self.channels);
        Tensor::from_data(TensorData::new(crops, [rows, side, side, self.channels]), &Device::flex())
    }

    /// Gradients of the second part's parameters and by the cropped maps, from those by its outputs.
    pub fn classify_gradients(
        &self,
        judgement: CropPass,
        by_scores: Vec<f32>,
        by_boxes: Vec<f32>,
    ) -> (PartialGradients, Vec<f32>) {
        let CropPass { pass, crops, outputs: [scores, boxes], .. } = judgement;
        let mut found = (weighed(scores, by_scores) + weighed(boxes, by_boxes)).backward();
        let by_crops = crops.grad_remove(&mut found).map(|g| to_vec(g.into_data())).unwrap_or_default();
        (self.partial(&pass, &mut found), by_crops)
    }

    /// Gradients of the first part's parameters, from those by its outputs.
    pub fn proposal_gradients(
        &self,
        proposals: ProposalPass,
        by_maps: Vec<f32>,
        by_objectness: Vec<f32>,
        by_steps: Vec<f32>,
    ) -> PartialGradients {
        let outputs = weighed(proposals.maps, by_maps) + weighed(proposals.objectness, by_objectness);
        let mut found = (outputs + weighed(proposals.steps, by_steps)).backward();
        self.partial(&proposals.pass, &mut found)
    }

    fn partial(&self, pass: &Pass, found: &mut Gradients) -> PartialGradients {
        PartialGradients(pass.found(found, &self.learns))
    }
}

fn seen([maps, objectness, steps]: [Tensor<4>; 3]) -> ProposalMaps {
    let [rows, height, width, channels] = maps.dims();
    let maps = Maps { rows, height, width, channels, values: to_vec(maps.into_data()) };
    ProposalMaps { maps, objectness: to_vec(objectness.into_data()), steps: to_vec(steps.into_data()) }
}

/// `sum(x * gradient)`: linear in x, and its derivative is the gradient.
fn weighed<const D: usize>(x: Tensor<D>, gradient: Vec<f32>) -> Tensor<1> {
    let gradient = TensorData::new(gradient, x.dims());
    (x * Tensor::from_inner(Tensor::from_data(gradient, &Device::flex()))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIDE: usize = 7;

    fn small() -> (Detector, Weights) {
        let config = config::NetworkSettings { width: 4, ..config::Config::default().network };
        let detector = Detector::new(&config, 32, 2, 9).unwrap();
        let weights = detector.init(5);
        (detector, weights)
    }

    fn frames() -> Frames {
        let (rows, height, width) = (2, 40, 56);
        let pixels = (0..rows * height * width * 3).map(|i| (i as f32 * 0.113).sin()).collect();
        Frames { rows, height, width, pixels }
    }

    fn wave(n: usize, step: f32) -> Vec<f32> {
        (0..n).map(|i| (i as f32 * step).cos()).collect()
    }

    #[test]
    fn the_map_has_a_cell_for_every_16_pixels() {
        let (detector, weights) = small();
        let seen = detector.propose(&weights, frames());
        assert_eq!((seen.maps.height, seen.maps.width, seen.maps.channels), (3, 4, 16));
        assert_eq!((seen.objectness.len(), seen.steps.len()), (2 * 12 * 9, 2 * 12 * 36));
        let proposals = detector.propose_in_training(&weights, frames());
        let far = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(far(&proposals.seen.maps.values, &seen.maps.values) < 1e-5, "training and inference give the same map");
        assert!(far(&proposals.seen.steps, &seen.steps) < 1e-5);
        let crops = wave(3 * SIDE * SIDE * detector.channels, 0.3);
        let [scores, boxes] = detector.classify(&weights, crops.clone(), SIDE);
        let judgement = detector.classify_in_training(&weights, crops, SIDE);
        assert_eq!((scores.rows, scores.dim, boxes.dim), (3, 3, 8));
        assert!(far(&judgement.scores.values, &scores.values) < 1e-6);
        assert!(far(&judgement.boxes.values, &boxes.values) < 1e-6);
    }

    /// A layer in bf16 is off by about 1 %, which twenty layers forward and backward magnify to some 10 %.
    #[test]
    fn bf16_is_close_to_f32() {
        let (f32, weights) = small();
        let bf16 = f32.clone().with_precision(Precision::Bf16);
        let crops = wave(3 * SIDE * SIDE * f32.channels, 0.3);
        let of = |detector: &Detector| {
            let seen = detector.propose(&weights, frames());
            let [scores, boxes] = detector.classify(&weights, crops.clone(), SIDE);
            let judgement = detector.classify_in_training(&weights, crops.clone(), SIDE);
            let (heads, by_crops) = detector.classify_gradients(judgement, wave(9, 0.4), wave(24, 0.8));
            let proposals = detector.propose_in_training(&weights, frames());
            let [a, b, c] = [(16, 0.2), (9, 0.5), (36, 0.9)].map(|(n, step)| wave(2 * 12 * n, step));
            let found = detector.proposal_gradients(proposals, a, b, c).with(heads);
            let gradients = found.into_iter().flatten().map(|g| to_vec(g.into_data()));
            let outputs = [seen.maps.values, seen.objectness, seen.steps, scores.values, boxes.values, by_crops];
            outputs.into_iter().chain(gradients).collect::<Vec<_>>()
        };
        for (place, (exact, found)) in of(&f32).iter().zip(of(&bf16)).enumerate() {
            let square = |values: &mut dyn Iterator<Item = f32>| values.map(|x| x * x).sum::<f32>();
            let difference = square(&mut exact.iter().zip(&found).map(|(a, b)| a - b));
            let off = (difference / square(&mut exact.iter().copied())).sqrt();
            // The gradient of a bias of the heads is a sum of what is given.
            assert!(off < 0.25 && (off > 0.0 || exact.len() < 40), "{place}: {off}");
        }
    }

    /// Both parts against finite differences, by one entry of every kind of parameter, and by a cropped map; frozen
    /// parameters have no gradient.
    #[test]
    fn gradients_are_differences() {
        let (detector, weights) = small();
        // Larger than the initial values, so that differences are measurable.
        let mut named = detector.named(&weights);
        for n in named.iter_mut().filter(|n| n.name.starts_with("rpn") || n.name.starts_with("roi")) {
            n.values.iter_mut().enumerate().for_each(|(i, v)| *v = 0.1 * (i as f32 * 0.7).sin());
        }
        let weights = detector.from_named(&named).unwrap();
        let crops = wave(2 * SIDE * SIDE * detector.channels, 0.3);
        let (a, b, c) = (wave(2 * 12 * 16, 0.2), wave(2 * 12 * 9, 0.5), wave(2 * 12 * 36, 0.9));
        let (d, e) = (wave(2 * 3, 0.4), wave(2 * 8, 0.8));
        let dot = |x: &[f32], g: &[f32]| x.iter().zip(g).map(|(x, g)| f64::from(*x) * f64::from(*g)).sum::<f64>();
        let value = |weights: &Weights, crops: &[f32]| {
            let seen = detector.propose(weights, frames());
            let [scores, boxes] = detector.classify(weights, crops.to_vec(), SIDE);
            dot(&seen.maps.values, &a)
                + dot(&seen.objectness, &b)
                + dot(&seen.steps, &c)
                + dot(&scores.values, &d)
                + dot(&boxes.values, &e)
        };
        let judgement = detector.classify_in_training(&weights, crops.clone(), SIDE);
        let (heads, by_crops) = detector.classify_gradients(judgement, d.clone(), e.clone());
        let proposals = detector.propose_in_training(&weights, frames());
        let found = detector.proposal_gradients(proposals, a.clone(), b.clone(), c.clone()).with(heads);
        let mut checked = 0;
        for (place, n) in named.iter().enumerate().take(found.len()) {
            let frozen = n.name.contains("bn") || n.name.contains("sample.1");
            let frozen = frozen || n.name.starts_with("conv1") || n.name.starts_with("layer1");
            assert_eq!(found[place].is_none(), frozen, "{}", n.name);
            let Some(gradient) = &found[place] else { continue };
            let gradient = to_vec(gradient.to_data());
            let i = n.values.len() / 2;
            let moved = |by: f32| {
                let mut named = named.clone();
                named[place].values[i] += by;
                value(&detector.from_named(&named).unwrap(), &crops)
            };
            let difference = (moved(2e-3) - moved(-2e-3)) / 4e-3;
            let close = (difference - f64::from(gradient[i])).abs() < 2e-2 * (1.0 + difference.abs());
            assert!(close, "{}: {difference} is not {}", n.name, gradient[i]);
            checked += 1;
        }
        assert!(checked > 20, "{checked}");
        for i in [0, 100, 700] {
            let moved = |by: f32| {
                let mut crops = crops.clone();
                crops[i] += by;
                value(&weights, &crops)
            };
            let difference = (moved(1e-2) - moved(-1e-2)) / 2e-2;
            assert!((difference - f64::from(by_crops[i])).abs() < 1e-2 * (1.0 + difference.abs()), "crop {i}");
        }
    }

    #[test]
    fn the_backbone_gives_initial_weights() {
        let (detector, weights) = small();
        let config = config::NetworkSettings { width: 4, ..config::Config::default().network };
        let backbone = super::super::Network::new(&config, 32).unwrap();
        let given = backbone.named(&backbone.init(9));
        let begun = detector.named(&detector.init_with(&given, 5).unwrap());
        let of = |list: &[Named], name: &str| list.iter().find(|n| n.name == name).unwrap().values.clone();
        assert_eq!(of(&begun, "layer3.0.conv1.weight"), of(&given, "layer3.0.conv1.weight"));
        let own = "rpn.head.bbox_pred.weight";
        assert_eq!(of(&begun, own), of(&detector.named(&weights), own));
        // An untrained detector has the untrained network of the same seed.
        assert_eq!(
            of(&detector.named(&weights), "layer4.1.conv2.weight"),
            of(&backbone.named(&backbone.init(5)), "layer4.1.conv2.weight")
        );
        let alexnet = config::NetworkSettings { arch: Arch::Alexnet, ..config };
        assert!(Detector::new(&alexnet, 32, 2, 9).unwrap_err().hint.contains("resnet18"));
        assert!(detector.init_with(&given[..3], 5).unwrap_err().message.contains("missing"));
    }
}
