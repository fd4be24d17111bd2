//! An ONNX file in the making: operations, arrays, inputs, outputs.

use crate::model::graph::{GraphNode, Op};
use pcp_core::io::proto::Message;

const OPSET: i64 = 17;
/// The version of the ONNX format that belongs to this opset.
const IR: i64 = 8;
const FLOAT: i64 = 1;
const INT64: i64 = 7;
/// Added to the variance by batch norm.
const EPSILON: f32 = kernels::BN_EPS;
/// Vectors shorter than this are divided by it.
const SHORTEST: f32 = 1e-12;

/// An ONNX model in the making.
#[derive(Default)]
pub(crate) struct OnnxFile {
    nodes: Vec<Message>,
    arrays: Vec<Message>,
    inputs: Vec<Message>,
    outputs: Vec<Message>,
    /// Whether the array of [`unit`](Self::unit) is there.
    has_shortest: bool,
}

impl OnnxFile {
    /// The operation `kind`.
    pub fn add(&mut self, kind: &str, inputs: &[&str], output: &str, attributes: &[(&str, Attribute)]) {
        let attribute = |(name, value): &(&str, Attribute)| {
            let named = Message::new().bytes(1, name);
            match value {
                Attribute::Float(v) => named.float(2, *v).int(20, 1),
                Attribute::Int(v) => named.int(3, *v).int(20, 2),
                Attribute::Ints(values) => named.each(values, |m, v| m.int(8, *v)).int(20, 7),
            }
        };
        let node = Message::new().each(inputs, |m, name| m.bytes(1, name)).bytes(2, output).bytes(3, output);
        self.nodes.push(node.bytes(4, kind).each(attributes, |m, a| m.message(5, &attribute(a))));
    }

    /// The operations that bring the rows of `x` to unit length.
    pub fn unit(&mut self, x: &str, output: &str) {
        if !std::mem::replace(&mut self.has_shortest, true) {
            self.array("shortest", &[1], &[SHORTEST]);
        }
        let (length, safe) = (format!("{output}.length"), format!("{output}.divisor"));
        let over = [("axes", Attribute::Ints(vec![1])), ("keepdims", Attribute::Int(1))];
        self.add("ReduceL2", &[x], &length, &over);
        self.add("Max", &[&length, "shortest"], &safe, &[]);
        self.add("Div", &[x, &safe], output, &[]);
    }

    /// The operations of a network's node.
    pub fn node(&mut self, node: &GraphNode, inputs: &[String], output: &str) {
        let pair = |v: usize| Attribute::Ints(vec![v as i64; 2]);
        let around = |v: usize| Attribute::Ints(vec![v as i64; 4]);
        let x = inputs[0].as_str();
        match &node.op {
            Op::Conv { weight, bias, stride, padding } => {
                let names: Vec<&str> = [x, weight].into_iter().chain(bias.as_deref()).collect();
                self.add("Conv", &names, output, &[("strides", pair(*stride)), ("pads", around(*padding))]);
            }
            Op::Norm { .. } => {
                let parts = node.op.arrays();
                let names: Vec<&str> = std::iter::once(x).chain(parts.iter().map(String::as_str)).collect();
                self.add("BatchNormalization", &names, output, &[("epsilon", Attribute::Float(EPSILON))]);
            }
            Op::Relu => self.add("Relu", &[x], output, &[]),
            Op::Add => self.add("Add", &[x, &inputs[1]], output, &[]),
            Op::MaxPool { size, stride, padding } => {
                let shape = [("kernel_shape", pair(*size)), ("strides", pair(*stride)), ("pads", around(*padding))];
                self.add("MaxPool", &[x], output, &shape);
            }
            Op::MeanPool => {
                let map = format!("{output}.map");
                self.add("GlobalAveragePool", &[x], &map, &[]);
                self.add("Flatten", &[&map], output, &[("axis", Attribute::Int(1))]);
            }
            Op::Flatten => self.add("Flatten", &[x], output, &[("axis", Attribute::Int(1))]),
            Op::Linear { weight, bias } => {
                let names: Vec<&str> = [x, weight].into_iter().chain(bias.as_deref()).collect();
                self.add("Gemm", &names, output, &[("transB", Attribute::Int(1))]);
            }
            Op::Unit => self.unit(x, output),
        }
    }

    /// An array of numbers.
    pub fn array(&mut self, name: &str, shape: &[usize], values: &[f32]) {
        self.arrays.push(tensor(name, shape, values));
    }

    /// A list of whole numbers.
    pub fn whole_numbers(&mut self, name: &str, values: &[i64]) {
        let raw: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.arrays.push(Message::new().int(1, values.len() as i64).int(2, INT64).bytes(8, name).bytes(9, raw));
    }

    /// An input with a value of this shape for every image.
    pub fn input(&mut self, name: &str, shape: &[usize]) {
        self.inputs.push(described(name, shape));
    }

    /// An output with a value of this shape for every image.
    pub fn output(&mut self, name: &str, shape: &[usize]) {
        self.outputs.push(described(name, shape));
    }

    /// The file, with metadata.
    pub fn into_bytes(self, facts: &[(&str, String)]) -> Vec<u8> {
        let graph = Message::new().each(self.nodes, |m, node| m.message(1, &node)).bytes(2, "pcp");
        let graph = graph.each(self.arrays, |m, array| m.message(5, &array));
        let graph = graph.each(self.inputs, |m, input| m.message(11, &input));
        let graph = graph.each(self.outputs, |m, output| m.message(12, &output));
        Message::new()
            .int(1, IR)
            .bytes(2, "pcp")
            .bytes(3, env!("CARGO_PKG_VERSION"))
            .message(7, &graph)
            .message(8, &Message::new().bytes(1, "").int(2, OPSET))
            .each(facts, |m, (key, value)| m.message(14, &Message::new().bytes(1, key).bytes(2, value)))
            .into_bytes()
    }
}

/// An attribute of an operation.
pub(crate) enum Attribute {
    Int(i64),
    Float(f32),
    Ints(Vec<i64>),
}

pub(super) fn tensor(name: &str, shape: &[usize], values: &[f32]) -> Message {
    let raw: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    Message::new().each(shape, |m, n| m.int(1, *n as i64)).int(2, FLOAT).bytes(8, name).bytes(9, raw)
}

/// An input or output: one entry of this shape per image.
fn described(name: &str, shape: &[usize]) -> Message {
    let rows = Message::new().message(1, &Message::new().bytes(2, "batch"));
    let shape = shape.iter().fold(rows, |m, n| m.message(1, &Message::new().int(1, *n as i64)));
    let tensor = Message::new().int(1, FLOAT).message(2, &shape);
    Message::new().bytes(1, name).message(2, &Message::new().message(1, &tensor))
}
