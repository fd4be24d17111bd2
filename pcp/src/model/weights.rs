//! The weights of a network: trained parameters, and running statistics of batch norm.

use super::combination::Combination;
use super::layers::Moments;
use burn::tensor::{Device, Tensor, TensorData};
use pcp_core::error::{Error, Result};
use pcp_core::io::tensors::Array;
use pcp_core::readout::Readout;
use pcp_core::rng::{Key, Purpose};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Initial values of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// U(-1/sqrt(fan_in), 1/sqrt(fan_in)), PyTorch's default.
    Uniform,
    /// As `Uniform`, for a bias, with the fan-in of its layer.
    UniformBias(usize),
    /// N(0, std).
    Normal(f32),
    /// One value.
    Constant(f32),
}

/// Name, shape and initial values of an array.
#[derive(Clone, Debug)]
pub struct Spec {
    pub name: String,
    pub shape: Vec<usize>,
    pub init: Init,
}

impl Spec {
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    fn values(&self, index: usize, seed: u64) -> Vec<f32> {
        let key = Key { purpose: Purpose::Weights, seed, round: 0, epoch: 0 };
        let mut stream = key.stream(index as u64, 0);
        let uniform = |fan_in: usize| 1.0 / (fan_in as f32).sqrt();
        let n = self.len();
        match self.init {
            Init::Uniform => {
                let a = uniform(self.shape[1..].iter().product());
                (0..n).map(|_| stream.uniform(-a, a)).collect()
            }
            Init::UniformBias(fan_in) => {
                let a = uniform(fan_in);
                (0..n).map(|_| stream.uniform(-a, a)).collect()
            }
            Init::Normal(std) => (0..n).map(|_| std * stream.normal()).collect(),
            Init::Constant(c) => vec![c; n],
        }
    }
}

/// An array with its name and shape, as in files.
#[derive(Clone, Debug, PartialEq)]
pub struct Named {
    /// Torchvision's name.
    pub name: String,
    /// Torchvision's shape.
    pub shape: Vec<usize>,
    /// The values, row-major.
    pub values: Vec<f32>,
}

/// The floats among `arrays` whose names begin with `prefix`, without it.
pub fn named_arrays(arrays: BTreeMap<String, Array>, prefix: &str) -> Vec<Named> {
    let named = |(name, array): (String, Array)| match array {
        Array::F32(shape, values) => Some(Named { name: name.strip_prefix(prefix)?.to_string(), shape, values }),
        Array::U32(..) => None,
    };
    arrays.into_iter().filter_map(named).collect()
}

/// The weights of a network. Cheap to clone: parameters are shared until one is changed.
#[derive(Clone, Debug)]
pub struct Weights {
    /// Trained parameters, each flattened.
    pub(super) parameters: Vec<Tensor<1>>,
    /// Running means and variances of batch norm.
    pub(super) buffers: Vec<Vec<f32>>,
    /// Patch features beside the network, where its embedding has them.
    pub(super) combination: Option<Arc<Combination>>,
    /// The readout of the pooled features, where one was learned.
    pub(super) readout: Option<Arc<Readout>>,
}

impl Weights {
    pub(super) fn init(parameters: &[Spec], buffers: &[Spec], seed: u64) -> Self {
        Weights {
            parameters: parameters.iter().enumerate().map(|(i, s)| flat(s.values(i, seed))).collect(),
            buffers: buffers.iter().map(|s| s.values(0, seed)).collect(),
            combination: None,
            readout: None,
        }
    }

    pub(super) fn named(&self, parameters: &[Spec], buffers: &[Spec]) -> Vec<Named> {
        let named = |s: &Spec, values| Named { name: s.name.clone(), shape: s.shape.clone(), values };
        let learned = parameters.iter().zip(&self.parameters).map(|(s, t)| named(s, to_vec(t.to_data())));
        let statistics = buffers.iter().zip(&self.buffers).map(|(s, b)| named(s, b.clone()));
        learned.chain(statistics).collect()
    }

    pub(super) fn from_named(parameters: &[Spec], buffers: &[Spec], named: &[Named]) -> Result<Self> {
        let find = |s: &Spec| -> Result<Vec<f32>> {
            let found = named.iter().find(|n| n.name == s.name);
            match found {
                Some(n) if n.shape == s.shape => Ok(n.values.clone()),
                Some(n) => Err(Error::file(
                    format!("{} has the shape {:?}, not {:?}", s.name, n.shape, s.shape),
                    "use weights of the same network (arch, width and size)",
                )),
                None => Err(Error::file(format!("{} is missing", s.name), "use weights of the same network")),
            }
        };
        Ok(Weights {
            parameters: parameters.iter().map(|s| find(s).map(flat)).collect::<Result<_>>()?,
            buffers: buffers.iter().map(find).collect::<Result<_>>()?,
            combination: None,
            readout: None,
        })
    }

    /// The same weights; the embedding is from now on that of `combination`.
    pub(crate) fn combined(&self, combination: Arc<Combination>) -> Weights {
        Weights { combination: Some(combination), ..self.clone() }
    }

    /// The patch features beside the network, where its embedding has them.
    pub(crate) fn combination(&self) -> Option<&Arc<Combination>> {
        self.combination.as_ref()
    }

    /// Updates the running statistics of batch norm with those of a step, view by view (PyTorch's momentum 0.1, unbiased variance).
    pub fn update_running_stats(&mut self, moments: &[Moments]) {
        const SHARE: f32 = 0.1;
        for m in moments {
            let unbiased = if m.count > 1 { m.count as f32 / (m.count - 1) as f32 } else { 1.0 };
            for (c, mean) in self.buffers[m.mean_buffer].iter_mut().enumerate() {
                *mean += SHARE * (m.mean[c] - *mean);
            }
            for (c, variance) in self.buffers[m.variance_buffer].iter_mut().enumerate() {
                *variance += SHARE * (m.variance[c] * unbiased - *variance);
            }
        }
    }

    /// Exponential moving average: parameters become `keep * self + (1 - keep) * other`. Running statistics stay.
    pub fn ema_update(&mut self, other: &Weights, keep: f64) {
        let pairs = self.parameters.iter_mut().zip(&other.parameters);
        pairs.for_each(|(p, q)| *p = p.clone() * keep + q.clone() * (1.0 - keep));
    }

    /// A checksum of all numbers.
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        let mut add = |values: &[f32]| hash.update(values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>());
        self.parameters.iter().for_each(|p| add(&to_vec(p.to_data())));
        self.buffers.iter().for_each(|b| add(b));
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether every number is finite.
    pub fn is_finite(&self) -> bool {
        let finite = |v: &[f32]| v.iter().all(|x| x.is_finite());
        self.parameters.iter().all(|p| finite(&to_vec(p.to_data()))) && self.buffers.iter().all(|b| finite(b))
    }
}

/// SGD with momentum: one velocity per parameter.
#[derive(Clone, Debug)]
pub struct Optimizer {
    velocity: Vec<Tensor<1>>,
}

impl Optimizer {
    /// Starts with velocities of zero.
    pub fn new(weights: &Weights) -> Self {
        Optimizer { velocity: weights.parameters.iter().map(|p| p.zeros_like()).collect() }
    }

    /// One step on all parameters.
    pub fn step(&mut self, weights: &mut Weights, gradients: Vec<Tensor<1>>, sgd: kernels::Sgd) {
        let old = weights.parameters.drain(..).zip(gradients).zip(self.velocity.drain(..));
        let (parameters, velocity) = old.map(|((w, g), v)| kernels::sgd(w, g, v, sgd)).unzip();
        (weights.parameters, self.velocity) = (parameters, velocity);
    }

    /// One step on the parameters that have a gradient.
    pub fn step_some(&mut self, weights: &mut Weights, gradients: Vec<Option<Tensor<1>>>, sgd: kernels::Sgd) {
        let places = weights.parameters.iter_mut().zip(self.velocity.iter_mut()).zip(gradients);
        for ((w, v), g) in places {
            if let Some(g) = g {
                (*w, *v) = kernels::sgd(w.clone(), g, v.clone(), sgd);
            }
        }
    }

    /// The velocities, in the order of the parameters.
    pub fn velocities(&self) -> Vec<Vec<f32>> {
        self.velocity.iter().map(|v| to_vec(v.to_data())).collect()
    }

    /// The reverse of [`velocities`](Self::velocities).
    pub fn from_velocities(velocities: Vec<Vec<f32>>) -> Self {
        Optimizer { velocity: velocities.into_iter().map(flat).collect() }
    }
}

/// A flat tensor on the CPU.
pub fn flat(values: Vec<f32>) -> Tensor<1> {
    let n = values.len();
    Tensor::from_data(TensorData::new(values, [n]), &Device::flex())
}

/// The values of a tensor of f32.
pub fn to_vec(data: TensorData) -> Vec<f32> {
    match data.try_into_vec::<f32>() {
        Ok(values) => values,
        Err(e) => unreachable!("maps in another precision are cast to f32 first: {e:?}"),
    }
}
