//! A network as a list of named operations, for export to other formats.

use super::layers::{ConvBn, Linear};
use super::network::{Body, Network};

/// One operation on values; names are those of [`Named`](super::Named) arrays.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// A convolution, `[b, c, h, w]` to `[b, k, h', w']`.
    Conv {
        /// `[k, c, kernel, kernel]`.
        weight: String,
        /// `[k]`.
        bias: Option<String>,
        /// The stride in pixels.
        stride: usize,
        /// Zeros on every side.
        padding: usize,
    },
    /// Batch norm with running statistics, over the second axis.
    Norm {
        /// The layer, to which `.weight`, `.bias`, `.running_mean` and `.running_var` belong.
        name: String,
    },
    /// Values below zero become zero.
    Relu,
    /// The sum of two values.
    Add,
    /// Max pooling.
    MaxPool {
        /// Side of the window.
        size: usize,
        /// The stride in pixels.
        stride: usize,
        /// Padding on every side, which is never the maximum.
        padding: usize,
    },
    /// The mean over a map, `[b, c, h, w]` to `[b, c]`.
    MeanPool,
    /// `[b, c, h, w]` to `[b, c h w]`.
    Flatten,
    /// `x w^T + b`.
    Linear {
        /// `[out, in]`.
        weight: String,
        /// `[out]`.
        bias: Option<String>,
    },
    /// Rows of unit length.
    Unit,
}

impl Op {
    /// The names of the arrays that it uses, in order.
    pub fn arrays(&self) -> Vec<String> {
        match self {
            Op::Conv { weight, bias, .. } | Op::Linear { weight, bias } => {
                std::iter::once(weight).chain(bias).cloned().collect()
            }
            Op::Norm { name } => {
                ["weight", "bias", "running_mean", "running_var"].map(|part| format!("{name}.{part}")).to_vec()
            }
            Op::Relu | Op::Add | Op::MaxPool { .. } | Op::MeanPool | Op::Flatten | Op::Unit => Vec::new(),
        }
    }
}

/// An operation and its inputs: value 0 is the image, value `i + 1` the output of operation `i`.
#[derive(Clone, Debug, PartialEq)]
pub struct GraphNode {
    /// The operation.
    pub op: Op,
    /// Its input values.
    pub inputs: Vec<usize>,
}

/// The operations of a network in inference, in an order in which they can be computed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    /// The operations.
    pub nodes: Vec<GraphNode>,
    /// The value of the pooled features.
    pub pooled: usize,
    /// The value of the embeddings.
    pub embedding: usize,
}

impl Graph {
    pub(super) fn push(&mut self, op: Op, inputs: &[usize]) -> usize {
        self.nodes.push(GraphNode { op, inputs: inputs.to_vec() });
        self.nodes.len()
    }
}

impl Network {
    /// The network as a list of operations.
    pub fn graph(&self) -> Graph {
        let mut graph = Graph::default();
        let mut x = match &self.body {
            Body::ResNet(net) => net.graph(self, &mut graph),
            Body::AlexNet(net) => net.graph(self, &mut graph),
        };
        graph.pooled = x;
        if let Some(layer) = &self.hidden {
            x = self.conv_op(&mut graph, layer, x, None);
        }
        for (i, layer) in self.head.iter().enumerate() {
            if i > 0 {
                x = graph.push(Op::Relu, &[x]);
            }
            x = self.linear_op(&mut graph, layer, x);
        }
        graph.embedding = graph.push(Op::Unit, &[x]);
        graph
    }

    fn name(&self, parameter: usize) -> String {
        self.parameters[parameter].name.clone()
    }

    pub(super) fn linear_op(&self, graph: &mut Graph, layer: &Linear, x: usize) -> usize {
        graph.push(Op::Linear { weight: self.name(layer.weight), bias: Some(self.name(layer.bias)) }, &[x])
    }

    /// Convolution and batch norm; then the optional `residual` and the optional ReLU.
    pub(super) fn conv_op(&self, graph: &mut Graph, layer: &ConvBn, x: usize, residual: Option<usize>) -> usize {
        let (weight, bias) = (self.name(layer.weight), layer.bias.map(|bias| self.name(bias)));
        let matrix = self.parameters[layer.weight].shape.len() == 2;
        let op = match matrix {
            true => Op::Linear { weight, bias },
            false => Op::Conv { weight, bias, stride: layer.conv.stride, padding: layer.conv.padding },
        };
        let y = graph.push(op, &[x]);
        let gamma = self.name(layer.gamma);
        let name = gamma.strip_suffix(".weight").unwrap_or(&gamma).to_string();
        let mut y = graph.push(Op::Norm { name }, &[y]);
        if let Some(residual) = residual {
            y = graph.push(Op::Add, &[y, residual]);
        }
        if layer.conv.relu { graph.push(Op::Relu, &[y]) } else { y }
    }
}
