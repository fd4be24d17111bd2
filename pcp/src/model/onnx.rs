//! A network as an ONNX model (opset 17): image `[batch, 3, side, side]` in, `embedding` (unit vectors) and `pooled` out, and
//! `whitened` where the model has a readout, any number of images at once. Arrays keep torchvision's names.

use super::Model;
use super::graph::{GraphNode, Op};
use pcp_core::error::Result;
use pcp_core::io::atomic::write_bytes;
use pcp_core::io::proto::Message;
use std::path::Path;

const OPSET: i64 = 17;
/// The version of the ONNX format that belongs to this opset.
const IR: i64 = 8;
const FLOAT: i64 = 1;
const INT64: i64 = 7;
/// Added to the variance by batch norm.
const EPSILON: f32 = kernels::BN_EPS;
/// Vectors shorter than this are divided by it.
pub(crate) const SHORTEST: f32 = 1e-12;

impl Model {
    /// Writes the ONNX model. With `preprocess` it takes values from 0 to 1 and normalises them itself; without, it takes normalised
    /// values.
    pub fn write_onnx(&self, path: &Path, preprocess: bool) -> Result<()> {
        write_bytes(path, &self.onnx(preprocess))
    }

    fn onnx(&self, preprocess: bool) -> Vec<u8> {
        let graph = self.network.graph();
        let value = |v: usize| match v {
            0 if preprocess => "normalised".to_string(),
            0 => "input".into(),
            v if v == graph.embedding => "embedding".into(),
            v if v == graph.pooled => "pooled".into(),
            v => format!("value{v}"),
        };
        let mut made = Message::new();
        if preprocess {
            made = made.message(1, &operation("Sub", &["input", "image.mean"], "centred", &[]));
            made = made.message(1, &operation("Div", &["centred", "image.std"], "normalised", &[]));
        }
        for (i, node) in graph.nodes.iter().enumerate() {
            let inputs: Vec<String> = node.inputs.iter().map(|v| value(*v)).collect();
            made = made.each(operations(node, &inputs, &value(i + 1)), |m, op| m.message(1, &op));
        }
        let readout = self.weights.readout();
        if readout.is_some() {
            made = made.message(
                1,
                &operation(
                    "Gemm",
                    &["pooled", "readout.map", "readout.bias"],
                    "read",
                    &[("transB", Attribute::Int(1))],
                ),
            );
            made = made.each(unit("read", "whitened"), |m, op| m.message(1, &op));
        }
        made = made.bytes(2, "pcp");
        for array in self.network.named(&self.weights) {
            made = made.message(5, &tensor(&array.name, &array.shape, &array.values));
        }
        made = made.message(5, &tensor("shortest", &[1], &[SHORTEST]));
        if preprocess {
            let channels = |v: [f64; 3]| v.map(|x| x as f32);
            made = made.message(5, &tensor("image.mean", &[1, 3, 1, 1], &channels(self.card.mean)));
            made = made.message(5, &tensor("image.std", &[1, 3, 1, 1], &channels(self.card.std)));
        }
        if let Some(readout) = readout {
            let map = &readout.map;
            made = made.message(5, &tensor("readout.map", &[map.rows, map.dim], &map.values));
            made = made.message(5, &tensor("readout.bias", &[map.rows], &readout.bias()));
        }
        let side = self.network.size;
        made = made.message(11, &described("input", &[3, side, side]));
        made = made.message(12, &described("embedding", &[self.network.embedding]));
        made = made.message(12, &described("pooled", &[self.network.pooled]));
        if let Some(readout) = readout {
            made = made.message(12, &described("whitened", &[readout.map.rows]));
        }
        whole(&made, &self.facts(preprocess))
    }

    /// Metadata: the preprocessing of the input, and the outputs.
    fn facts(&self, preprocess: bool) -> [(&'static str, String); 4] {
        let values = if preprocess { "RGB from 0 to 1" } else { "RGB from 0 to 1, minus mean, divided by std" };
        let list = |v: [f64; 3]| v.map(|x| x.to_string()).join(" ");
        let outputs = match self.weights.readout() {
            Some(_) => {
                "embedding: unit vectors; pooled: the output of the layer before them; whitened: pooled, partially whitened, unit vectors"
            }
            None => "embedding: unit vectors; pooled: the output of the layer before them",
        };
        [
            ("input", format!("{values}; {}", self.card.preprocessing())),
            ("mean", list(self.card.mean)),
            ("std", list(self.card.std)),
            ("outputs", outputs.into()),
        ]
    }
}

/// The file of a graph, with metadata.
pub(crate) fn whole(graph: &Message, facts: &[(&str, String)]) -> Vec<u8> {
    Message::new()
        .int(1, IR)
        .bytes(2, "pcp")
        .bytes(3, env!("CARGO_PKG_VERSION"))
        .message(7, graph)
        .message(8, &Message::new().bytes(1, "").int(2, OPSET))
        .each(facts, |m, (key, value)| m.message(14, &Message::new().bytes(1, key).bytes(2, value)))
        .into_bytes()
}

/// The operations that bring the rows of `x` to unit length; the array `shortest` must be among the others.
pub(crate) fn unit(x: &str, output: &str) -> Vec<Message> {
    let (length, safe) = (format!("{output}.length"), format!("{output}.divisor"));
    let over = [("axes", Attribute::Ints(vec![1])), ("keepdims", Attribute::Int(1))];
    vec![
        operation("ReduceL2", &[x], &length, &over),
        operation("Max", &[&length, "shortest"], &safe, &[]),
        operation("Div", &[x, &safe], output, &[]),
    ]
}

/// An attribute of an operation.
pub(crate) enum Attribute {
    Int(i64),
    Float(f32),
    Ints(Vec<i64>),
}

/// The ONNX operations of a node.
fn operations(node: &GraphNode, inputs: &[String], output: &str) -> Vec<Message> {
    let pair = |v: usize| Attribute::Ints(vec![v as i64; 2]);
    let around = |v: usize| Attribute::Ints(vec![v as i64; 4]);
    let x = inputs[0].as_str();
    match &node.op {
        Op::Conv { weight, bias, stride, padding } => {
            let names: Vec<&str> = [x, weight].into_iter().chain(bias.as_deref()).collect();
            vec![operation("Conv", &names, output, &[("strides", pair(*stride)), ("pads", around(*padding))])]
        }
        Op::Norm { name } => {
            let parts = ["weight", "bias", "running_mean", "running_var"].map(|part| format!("{name}.{part}"));
            let names: Vec<&str> = std::iter::once(x).chain(parts.iter().map(String::as_str)).collect();
            vec![operation("BatchNormalization", &names, output, &[("epsilon", Attribute::Float(EPSILON))])]
        }
        Op::Relu => vec![operation("Relu", &[x], output, &[])],
        Op::Add => vec![operation("Add", &[x, &inputs[1]], output, &[])],
        Op::MaxPool { size, stride, padding } => {
            let shape = [("kernel_shape", pair(*size)), ("strides", pair(*stride)), ("pads", around(*padding))];
            vec![operation("MaxPool", &[x], output, &shape)]
        }
        Op::MeanPool => {
            let map = format!("{output}.map");
            vec![
                operation("GlobalAveragePool", &[x], &map, &[]),
                operation("Flatten", &[&map], output, &[("axis", Attribute::Int(1))]),
            ]
        }
        Op::Flatten => vec![operation("Flatten", &[x], output, &[("axis", Attribute::Int(1))])],
        Op::Linear { weight, bias } => {
            let names: Vec<&str> = [x, weight].into_iter().chain(bias.as_deref()).collect();
            vec![operation("Gemm", &names, output, &[("transB", Attribute::Int(1))])]
        }
        Op::Unit => unit(x, output),
    }
}

pub(crate) fn operation(kind: &str, inputs: &[&str], output: &str, attributes: &[(&str, Attribute)]) -> Message {
    let attribute = |(name, value): &(&str, Attribute)| {
        let named = Message::new().bytes(1, name);
        match value {
            Attribute::Float(v) => named.float(2, *v).int(20, 1),
            Attribute::Int(v) => named.int(3, *v).int(20, 2),
            Attribute::Ints(values) => named.each(values, |m, v| m.int(8, *v)).int(20, 7),
        }
    };
    Message::new()
        .each(inputs, |m, name| m.bytes(1, name))
        .bytes(2, output)
        .bytes(3, output)
        .bytes(4, kind)
        .each(attributes, |m, a| m.message(5, &attribute(a)))
}

pub(crate) fn tensor(name: &str, shape: &[usize], values: &[f32]) -> Message {
    let raw: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    Message::new().each(shape, |m, n| m.int(1, *n as i64)).int(2, FLOAT).bytes(8, name).bytes(9, raw)
}

/// An array of whole numbers.
pub(crate) fn whole_numbers(name: &str, values: &[i64]) -> Message {
    let raw: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    Message::new().int(1, values.len() as i64).int(2, INT64).bytes(8, name).bytes(9, raw)
}

/// An input or output: one entry of this shape per image.
pub(crate) fn described(name: &str, shape: &[usize]) -> Message {
    let rows = Message::new().message(1, &Message::new().bytes(2, "batch"));
    let shape = shape.iter().fold(rows, |m, n| m.message(1, &Message::new().int(1, *n as i64)));
    let tensor = Message::new().int(1, FLOAT).message(2, &shape);
    Message::new().bytes(1, name).message(2, &Message::new().message(1, &tensor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, NetworkSettings as Settings};
    use crate::model::ModelCard;
    use crate::model::untrained_card;

    /// Fields of a message: number and content; whole numbers as their bytes.
    fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
        fn varint(bytes: &mut &[u8]) -> u64 {
            let mut value = 0;
            for i in 0.. {
                let byte = bytes[0];
                *bytes = &bytes[1..];
                value |= u64::from(byte & 0x7f) << (7 * i);
                if byte < 0x80 {
                    break;
                }
            }
            value
        }
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let length = match key & 7 {
                0 => {
                    found.push((key >> 3, varint(&mut bytes).to_le_bytes().to_vec()));
                    continue;
                }
                1 => 8,
                5 => 4,
                _ => varint(&mut bytes) as usize,
            };
            found.push((key >> 3, bytes[..length].to_vec()));
            bytes = &bytes[length..];
        }
        found
    }

    fn text(bytes: &[u8]) -> String {
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[test]
    fn every_value_is_computed_once_and_before_its_use() {
        for (arch, side, preprocess) in
            [("resnet18", 16, true), ("resnet18", 80, false), ("alexnet", 16, true), ("alexnet224", 63, false)]
        {
            let arch = toml::Value::from(arch).try_into().unwrap();
            let settings = Settings { arch, width: 4, ..Config::default().network };
            let (mean, std) = ([0.5; 3], [0.25; 3]);
            let card = ModelCard { size: side, mean, std, ..untrained_card(settings) };
            let model = Model::untrained(card, 0).unwrap();
            let whole = fields(&model.onnx(preprocess));
            let graph = fields(&whole.iter().find(|(n, _)| *n == 7).unwrap().1);
            let names = |number: u64| -> Vec<String> {
                let all = graph.iter().filter(|(n, _)| *n == number);
                all.map(|(_, m)| {
                    text(&fields(m).iter().find(|(n, _)| *n == if number == 5 { 8 } else { 1 }).unwrap().1)
                })
                .collect()
            };
            assert_eq!((names(11), names(12)), (vec!["input".to_string()], vec!["embedding".into(), "pooled".into()]));
            let mut known: Vec<String> = names(5).into_iter().chain(names(11)).collect();
            for (_, node) in graph.iter().filter(|(n, _)| *n == 1) {
                let of = |number: u64| -> Vec<String> {
                    fields(node).iter().filter(|(n, _)| *n == number).map(|(_, b)| text(b)).collect()
                };
                assert!(of(1).iter().all(|name| known.contains(name)), "{arch:?}: {:?} of {known:?}", of(1));
                assert!(of(2).iter().all(|name| !known.contains(name)), "{arch:?}: {:?} twice", of(2));
                known.extend(of(2));
            }
            assert!(names(12).iter().all(|name| known.contains(name)));
            // Every array of the network is used.
            let used: Vec<String> = graph
                .iter()
                .filter(|(n, _)| *n == 1)
                .flat_map(|(_, node)| fields(node))
                .filter(|(n, _)| *n == 1)
                .map(|(_, b)| text(&b))
                .collect();
            assert!(names(5).iter().all(|name| used.contains(name)), "{arch:?}");
        }
    }

    #[test]
    fn a_tensor_is_its_shape_its_name_and_its_bytes() {
        let found = fields(&tensor("w", &[2, 1], &[1.0, -2.0]).into_bytes());
        let number = |v: u64| v.to_le_bytes().to_vec();
        let raw = [1.0f32.to_le_bytes(), (-2.0f32).to_le_bytes()].concat();
        assert_eq!(found, [(1, number(2)), (1, number(1)), (2, number(1)), (8, b"w".to_vec()), (9, raw)]);
    }
}
