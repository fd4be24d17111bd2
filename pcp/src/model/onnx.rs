//! A network as an ONNX model (opset 17): image `[batch, 3, side, side]` in, `embedding` (unit vectors) and `pooled` out, and
//! `whitened` where the model has a readout, any number of images at once. Arrays keep torchvision's names.
//!
//! A network beside patches takes a second view, `square` `[batch, 3, side, side]`, the whole image with values from 0 to 1, and its
//! `embedding` is both side by side ([`Combination`]).

mod file;
mod patches;

pub(crate) use file::{Attribute, OnnxFile};
pub(crate) use patches::onnx_patches;

use super::Model;
use super::combination::Combination;
use super::graph::Graph;
use pcp_core::error::Result;
use pcp_core::io::atomic::write_new;
use std::io::Write;
use std::path::Path;

impl Model {
    /// Writes the ONNX model. With `preprocess` it takes values from 0 to 1 and normalises them itself; without, it takes normalised
    /// values.
    pub fn write_onnx(&self, path: &Path, preprocess: bool) -> Result<()> {
        let bytes = self.onnx(preprocess);
        write_new(path, |w| w.write_all(&bytes))
    }

    fn onnx(&self, preprocess: bool) -> Vec<u8> {
        let mut file = OnnxFile::default();
        file.input("input", &[3, self.network.size, self.network.size]);
        let mut image = "input";
        if preprocess {
            let channels = |v: [f64; 3]| v.map(|x| x as f32);
            file.array("image.mean", &[1, 3, 1, 1], &channels(self.card.mean));
            file.array("image.std", &[1, 3, 1, 1], &channels(self.card.std));
            file.add("Sub", &[image, "image.mean"], "centred", &[]);
            file.add("Div", &["centred", "image.std"], "normalised", &[]);
            image = "normalised";
        }
        match self.weights.combination() {
            None => {
                self.layers(&mut file, &self.network.graph(), image, "pooled");
                file.output("embedding", &[self.network.embedding]);
            }
            Some(combination) => self.beside_patches(&mut file, combination, image),
        }
        file.output("pooled", &[self.network.pooled]);
        if let Some(readout) = self.weights.readout() {
            let map = &readout.map;
            file.array("readout.map", &[map.rows, map.dim], &map.values);
            file.array("readout.bias", &[map.rows], &readout.bias());
            file.add("Gemm", &["pooled", "readout.map", "readout.bias"], "read", &[("transB", Attribute::Int(1))]);
            file.unit("read", "whitened");
            file.output("whitened", &[map.rows]);
        }
        file.into_bytes(&self.facts(preprocess))
    }

    /// The operations of `graph` on `image`, with their arrays; the pooled features are called `pooled`.
    fn layers(&self, file: &mut OnnxFile, graph: &Graph, image: &str, pooled: &str) {
        let value = |v: usize| match v {
            0 => image.to_string(),
            v if v == graph.embedding => "embedding".into(),
            v if v == graph.pooled => pooled.into(),
            v => format!("value{v}"),
        };
        for (i, node) in graph.nodes.iter().enumerate() {
            let inputs: Vec<String> = node.inputs.iter().map(|v| value(*v)).collect();
            file.node(node, &inputs, &value(i + 1));
        }
        let used: Vec<String> = graph.nodes.iter().flat_map(|node| node.op.arrays()).collect();
        for array in self.network.named(&self.weights).into_iter().filter(|array| used.contains(&array.name)) {
            file.array(&array.name, &array.shape, &array.values);
        }
    }

    /// The embedding of patches and network side by side; the network sees the image and its mirror image as one batch.
    fn beside_patches(&self, file: &mut OnnxFile, combination: &Combination, image: &str) {
        let side = combination.card.side;
        file.input("square", &[3, side, side]);
        onnx_patches(file, combination.patches(), combination.codes(), "square", "patches.features");
        for (name, value) in [("mirror.from", -1), ("mirror.to", i64::MIN), ("mirror.axis", 3), ("mirror.step", -1)] {
            file.whole_numbers(name, &[value]);
        }
        file.add("Slice", &[image, "mirror.from", "mirror.to", "mirror.axis", "mirror.step"], "mirrored", &[]);
        file.add("Concat", &[image, "mirrored"], "views", &[("axis", Attribute::Int(0))]);
        // Without the head: the embedding is read from the pooled features.
        let mut graph = self.network.graph();
        graph.nodes.truncate(graph.pooled);
        self.layers(file, &graph, "views", "pooled.views");
        file.whole_numbers("two.views", &[2, -1, self.network.pooled as i64]);
        file.add("Reshape", &["pooled.views", "two.views"], "pooled.both", &[]);
        let across = |axis: i64| [("axes", Attribute::Ints(vec![axis])), ("keepdims", Attribute::Int(0))];
        file.add("ReduceMean", &["pooled.both"], "pooled.mean", &across(0));
        file.whole_numbers("own.view", &[0]);
        file.add("Gather", &["pooled.both", "own.view"], "pooled.own", &[("axis", Attribute::Int(0))]);
        file.whole_numbers("first.axis", &[0]);
        file.add("Squeeze", &["pooled.own", "first.axis"], "pooled", &[]);
        let (readout, weight) = (combination.pooled(), combination.card.weight);
        file.array("pooled.readout.map", &[readout.map.rows, readout.map.dim], &readout.map.values);
        file.array("pooled.readout.bias", &[readout.map.rows], &readout.bias());
        let names = ["pooled.mean", "pooled.readout.map", "pooled.readout.bias"];
        file.add("Gemm", &names, "network.read", &[("transB", Attribute::Int(1))]);
        file.unit("network.read", "network.features");
        for (part, share) in [("patches", 1.0 - weight), ("network", weight)] {
            let scale = format!("{part}.scale");
            file.array(&scale, &[1], &[share.sqrt() as f32]);
            file.add("Mul", &[&format!("{part}.features"), &scale], &format!("{part}.part"), &[]);
        }
        file.add("Concat", &["patches.part", "network.part"], "side_by_side", &[("axis", Attribute::Int(1))]);
        file.unit("side_by_side", "embedding");
        file.output("embedding", &[combination.codes().map.rows + readout.map.rows]);
    }

    /// Metadata: the preprocessing of the input, and the outputs.
    fn facts(&self, preprocess: bool) -> Vec<(&'static str, String)> {
        let values = if preprocess { "RGB from 0 to 1" } else { "RGB from 0 to 1, minus mean, divided by std" };
        let list = |v: [f64; 3]| v.map(|x| x.to_string()).join(" ");
        let mut outputs = match self.weights.combination() {
            Some(_) => "embedding: patch features and the network's side by side, unit vectors; pooled: the network's, before them",
            None => "embedding: unit vectors; pooled: the output of the layer before them",
        }
        .to_string();
        if self.weights.readout().is_some() {
            outputs += "; whitened: pooled, partially whitened, unit vectors";
        }
        let mut facts = vec![
            ("input", format!("{values}; {}", self.card.preprocessing())),
            ("mean", list(self.card.mean)),
            ("std", list(self.card.std)),
            ("outputs", outputs),
        ];
        if let Some(combination) = self.weights.combination() {
            facts.push(("square", format!("RGB from 0 to 1; {}", combination.card.preprocessing())));
        }
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, NetworkSettings as Settings};
    use crate::model::combination::tests::made_combination;
    use crate::model::{ModelCard, untrained_card};
    use std::sync::Arc;

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

    /// Every value is computed once and before its use, and every array is used; returns the names of inputs and outputs.
    fn hold(file: &[u8], what: &str) -> [Vec<String>; 2] {
        let graph = fields(&fields(file).into_iter().find(|(n, _)| *n == 7).unwrap().1);
        let names = |number: u64| -> Vec<String> {
            let name = if number == 5 { 8 } else { 1 };
            let all = graph.iter().filter(|(n, _)| *n == number);
            all.map(|(_, m)| text(&fields(m).iter().find(|(n, _)| *n == name).unwrap().1)).collect()
        };
        let mut known: Vec<String> = names(5).into_iter().chain(names(11)).collect();
        let mut used = Vec::new();
        for (_, node) in graph.iter().filter(|(n, _)| *n == 1) {
            let of = |number: u64| -> Vec<String> {
                fields(node).iter().filter(|(n, _)| *n == number).map(|(_, b)| text(b)).collect()
            };
            assert!(of(1).iter().all(|name| known.contains(name)), "{what}: {:?} of {known:?}", of(1));
            assert!(of(2).iter().all(|name| !known.contains(name)), "{what}: {:?} twice", of(2));
            used.extend(of(1));
            known.extend(of(2));
        }
        assert!(names(12).iter().all(|name| known.contains(name)), "{what}");
        assert!(names(5).iter().all(|name| used.contains(name)), "{what}");
        [names(11), names(12)]
    }

    #[test]
    fn every_value_is_computed_once_and_before_its_use() {
        for (arch, side, preprocess) in
            [("resnet18", 16, true), ("resnet18", 80, false), ("alexnet", 16, true), ("alexnet224", 63, false)]
        {
            let named = toml::Value::from(arch).try_into().unwrap();
            let settings = Settings { arch: named, width: 4, ..Config::default().network };
            let (mean, std) = ([0.5; 3], [0.25; 3]);
            let card = ModelCard { size: side, mean, std, ..untrained_card(settings) };
            let mut model = Model::untrained(card, 0).unwrap();
            let found = hold(&model.onnx(preprocess), arch);
            assert_eq!(found, [vec!["input"], vec!["embedding", "pooled"]]);
            model.weights = model.weights.combined(Arc::new(made_combination(model.network.pooled, 0.25)));
            let found = hold(&model.onnx(preprocess), arch);
            assert_eq!(found, [vec!["input", "square"], vec!["embedding", "pooled"]]);
        }
    }

    /// Patches and network, each with a share, computed by another program.
    #[cfg(feature = "onnx")]
    #[test]
    fn patches_and_network_side_by_side_are_the_same_in_tract() {
        use tract_onnx::prelude::*;
        let settings = Settings { width: 4, ..Config::default().network };
        let mut model = Model::untrained(ModelCard { size: 16, ..untrained_card(settings) }, 3).unwrap();
        model.weights = model.weights.combined(Arc::new(made_combination(model.network.pooled, 0.25)));
        for preprocess in [true, false] {
            let sample = model.sample(3, preprocess);
            let values = |name: &str| -> Tensor {
                let (_, shape, values) = sample.arrays.iter().find(|(other, ..)| *other == name).unwrap();
                Tensor::from_shape(&[&[3], &shape[..]].concat(), values).unwrap()
            };
            let mut read = tract_onnx::onnx().model_for_read(&mut &model.onnx(preprocess)[..]).unwrap();
            for (i, name) in ["input", "square"].into_iter().enumerate() {
                read = read.with_input_fact(i, f32::fact(values(name).shape()).into()).unwrap();
            }
            let plan = read.into_optimized().unwrap().into_runnable().unwrap();
            let made = plan.run(tvec!(values("input").into(), values("square").into())).unwrap();
            for (name, made) in ["embedding", "pooled"].into_iter().zip(made) {
                let expected = values(name);
                assert_eq!(made.shape(), expected.shape());
                let [made, expected] = [&*made, &expected].map(|t| t.to_plain_array_view::<f32>().unwrap());
                made.iter().zip(expected).for_each(|(a, b)| assert!((a - b).abs() < 1e-4, "{name}: {a} is not {b}"));
            }
        }
    }

    #[test]
    fn a_tensor_is_its_shape_its_name_and_its_bytes() {
        let found = fields(&file::tensor("w", &[2, 1], &[1.0, -2.0]).into_bytes());
        let number = |v: u64| v.to_le_bytes().to_vec();
        let raw = [1.0f32.to_le_bytes(), (-2.0f32).to_le_bytes()].concat();
        assert_eq!(found, [(1, number(2)), (1, number(1)), (2, number(1)), (8, b"w".to_vec()), (9, raw)]);
    }
}
