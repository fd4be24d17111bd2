//! A patch model as an ONNX model (opset 17): image `[batch, 3, side, side]` with values from 0 to 1 in, `embedding` (unit vectors)
//! out; and a sample to check it with.
//!
//! With the filter `f` made to sum to zero, the product of a filter with a patch whose contrast is normalised is a convolution with
//! `f`, divided by the deviation of the patch, which two more convolutions give.

use super::PatchModel;
use crate::data::augment::whole_image;
use crate::model::onnx::{Attribute, SHORTEST, described, operation, tensor, unit, whole, whole_numbers};
use pcp_core::cancel::Cancel;
use pcp_core::error::Result;
use pcp_core::io::atomic::write_bytes;
use pcp_core::io::npy::write_npz;
use pcp_core::io::proto::Message;
use pcp_core::patches::{FLAT, SquareBatch};
use pcp_core::rng::{Key, Purpose};
use std::path::Path;

impl PatchModel {
    /// The preprocessing of images in words.
    pub fn preprocessing(&self) -> String {
        whole_image(self.patches.side())
    }

    /// Writes the ONNX model.
    pub fn write_onnx(&self, path: &Path) -> Result<()> {
        write_bytes(path, &self.onnx())
    }

    /// Writes `count` images of coloured squares and their features as NPZ: `input` `[count, 3, side, side]`, `embedding`.
    pub fn write_sample(&self, path: &Path, count: usize) -> Result<()> {
        let (side, area) = (self.patches.side(), self.patches.side().pow(2));
        let key = Key { purpose: Purpose::Synthetic, seed: 0, round: 0, epoch: 0 };
        let square = (side / 8).max(1);
        let (mut input, mut pixels) = (vec![0.0f32; count * 3 * area], vec![0.0f32; count * 3 * area]);
        for (n, c, y, x) in (0..count * 3 * area).map(|i| (i / (3 * area), i / area % 3, i / side % side, i % side)) {
            let place = ((n * 3 + c) * side + y / square) * side + x / square;
            let value = key.stream(place as u64, 0).uniform(0.0, 1.0);
            input[((n * 3 + c) * side + y) * side + x] = value;
            pixels[((n * side + y) * side + x) * 3 + c] = value;
        }
        let made = self.patches.embed(&self.readout, &SquareBatch { side, pixels: &pixels }, &Cancel::default())?;
        write_npz(path, |z| {
            z.add_shaped("input", &[count, 3, side, side], &input)?;
            z.add_shaped("embedding", &[made.rows, made.dim], &made.values)
        })
    }

    fn onnx(&self) -> Vec<u8> {
        let settings = self.patches.settings();
        let (side, patch, k, cells) = (self.patches.side(), settings.patch, settings.centroids, settings.cells);
        let numbers = patch * patch * 3;
        let mut made = Message::new();
        let mut add = |kind: &str, inputs: &[&str], output: &str, attributes: &[(&str, Attribute)]| {
            let next = operation(kind, inputs, output, attributes);
            made = std::mem::replace(&mut made, Message::new()).message(1, &next);
        };
        // The contrast does not depend on a constant; around zero, squares keep more digits.
        add("Sub", &["input", "half"], "level0", &[]);
        for level in 0..settings.levels {
            let image = format!("level{level}");
            if level > 0 {
                let two = || Attribute::Ints(vec![2; 2]);
                let finer = format!("level{}", level - 1);
                add("AveragePool", &[&finer], &image, &[("kernel_shape", two()), ("strides", two())]);
            }
            let named = |name: &str| format!("{image}.{name}");
            let stride = settings.level(side, level).stride as i64;
            let strides = || [("strides", Attribute::Ints(vec![stride; 2]))];
            add("Mul", &[&image, &image], &named("squares"), &[]);
            add("Conv", &[&image, "box"], &named("mean"), &strides());
            add("Conv", &[&named("squares"), "box"], &named("power"), &strides());
            add("Mul", &[&named("mean"), &named("mean")], &named("squared_mean"), &[]);
            add("Sub", &[&named("power"), &named("squared_mean")], &named("population"), &[]);
            add("Mul", &[&named("population"), "correction"], &named("variance"), &[]);
            add("Add", &[&named("variance"), "flat"], &named("raised"), &[]);
            add("Sqrt", &[&named("raised")], &named("deviation"), &[]);
            for filters in ["own", "mirror"] {
                let named = |name: &str| format!("{image}.{filters}{name}");
                add("Conv", &[&image, &named("")], &named(".products"), &strides());
                add("Div", &[&named(".products"), &format!("{image}.deviation")], &named(".scaled"), &[]);
                add("Add", &[&named(".scaled"), &format!("{image}.constant")], &named(".plus"), &[]);
                add("Neg", &[&named(".plus")], &named(".minus"), &[]);
                for sign in ["plus", "minus"] {
                    let map = named(&format!(".{sign}.above"));
                    add("Sub", &[&named(&format!(".{sign}")), "threshold"], &format!("{map}.shifted"), &[]);
                    add("Relu", &[&format!("{map}.shifted")], &map, &[]);
                    for cell in 0..cells * cells {
                        let (from, to) = (format!("{image}.cell{cell}.from"), format!("{image}.cell{cell}.to"));
                        add("Slice", &[&map, &from, &to, "cell.axes"], &format!("{map}.{cell}"), &[]);
                        let over = [("axes", Attribute::Ints(vec![2, 3])), ("keepdims", Attribute::Int(0))];
                        add("ReduceMean", &[&format!("{map}.{cell}")], &format!("{map}.{cell}.mean"), &over);
                    }
                }
            }
        }
        let mut parts = Vec::new();
        for (level, cell) in (0..settings.levels * cells * cells).map(|i| (i / (cells * cells), i % (cells * cells))) {
            let mirrored = cell / cells * cells + cells - 1 - cell % cells;
            for sign in ["plus", "minus"] {
                let part = format!("level{level}.code{cell}.{sign}");
                let own = format!("level{level}.own.{sign}.above.{cell}.mean");
                add("Add", &[&own, &format!("level{level}.mirror.{sign}.above.{mirrored}.mean")], &part, &[]);
                parts.push(part);
            }
        }
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        add("Concat", &parts, "both", &[("axis", Attribute::Int(1))]);
        add("Mul", &["both", "half"], "codes", &[]);
        add("Sqrt", &["codes"], "roots", &[]);
        add("Sub", &["roots", "readout.mean"], "roots.centred", &[]);
        add("Gemm", &["roots.centred", "readout.map"], "read", &[("transB", Attribute::Int(1))]);
        made = made.each(unit("read", "embedding"), |m, op| m.message(1, &op)).bytes(2, "pcp");

        let mut arrays = vec![
            tensor("half", &[1], &[0.5]),
            tensor("box", &[1, 3, patch, patch], &vec![1.0 / numbers as f32; numbers]),
            tensor("correction", &[1], &[numbers as f32 / (numbers - 1) as f32]),
            tensor("flat", &[1], &[FLAT]),
            tensor("threshold", &[1], &[settings.threshold]),
            tensor("readout.mean", &[1, self.readout.mean.len()], &self.readout.mean),
            tensor("readout.map", &[self.readout.map.rows, self.readout.map.dim], &self.readout.map.values),
            tensor("shortest", &[1], &[SHORTEST]),
            whole_numbers("cell.axes", &[2, 3]),
        ];
        for level in 0..settings.levels {
            let named = |name: &str| format!("level{level}.{name}");
            arrays.push(tensor(&named("own"), &[k, 3, patch, patch], &self.kernels(level, false)));
            arrays.push(tensor(&named("mirror"), &[k, 3, patch, patch], &self.kernels(level, true)));
            arrays.push(tensor(&named("constant"), &[1, k, 1, 1], &self.constants(level)));
            let first = |cell: usize| (cell * settings.level(side, level).positions).div_ceil(cells) as i64;
            for cell in 0..cells * cells {
                let (y, x) = (cell / cells, cell % cells);
                arrays.push(whole_numbers(&named(&format!("cell{cell}.from")), &[first(y), first(x)]));
                arrays.push(whole_numbers(&named(&format!("cell{cell}.to")), &[first(y + 1), first(x + 1)]));
            }
        }
        made = made.each(arrays, |m, array| m.message(5, &array));
        made = made.message(11, &described("input", &[3, side, side]));
        made = made.message(12, &described("embedding", &[self.dim()]));
        let facts = [
            ("input", format!("RGB from 0 to 1; {}", self.preprocessing())),
            ("outputs", "embedding: unit vectors".to_string()),
        ];
        whole(&made, &facts)
    }

    /// The filters of a level, a row each.
    fn level_filters(&self, level: usize) -> std::slice::ChunksExact<'_, f32> {
        let (filters, k) = (self.patches.filters(), self.patches.settings().centroids);
        filters.values[level * k * filters.dim..][..k * filters.dim].chunks_exact(filters.dim)
    }

    /// The filters of a level as kernels `[k, 3, patch, patch]` that sum to zero, or their mirror images.
    fn kernels(&self, level: usize, mirrored: bool) -> Vec<f32> {
        let patch = self.patches.settings().patch;
        let numbers = patch * patch * 3;
        let mut out = Vec::new();
        for row in self.level_filters(level) {
            let mean = row[..numbers].iter().map(|f| f64::from(*f)).sum::<f64>() / numbers as f64;
            for (channel, y, x) in (0..numbers).map(|i| (i / (patch * patch), i / patch % patch, i % patch)) {
                let x = if mirrored { patch - 1 - x } else { x };
                out.push((f64::from(row[(y * patch + x) * 3 + channel]) - mean) as f32);
            }
        }
        out
    }

    /// What every filter of a level adds.
    fn constants(&self, level: usize) -> Vec<f32> {
        self.level_filters(level).map(|row| row[row.len() - 1]).collect()
    }
}
