//! A patch model as an ONNX model (opset 17): image `[batch, 3, side, side]` with values from 0 to 1 in, `embedding` (unit vectors)
//! out; and a sample to check it with.
//!
//! With the filter `f` made to sum to zero, the product of a filter with a patch whose contrast is normalised is a convolution with
//! `f`, divided by the deviation of the patch, which two more convolutions give.

use super::PatchModel;
use super::views::Pixels;
use crate::data::augment::whole_image;
use crate::model::onnx::{Attribute, SHORTEST, described, operation, tensor, unit, whole, whole_numbers};
use pcp_core::cancel::Cancel;
use pcp_core::error::Result;
use pcp_core::io::atomic::write_bytes;
use pcp_core::io::npy::write_npz;
use pcp_core::io::proto::Message;
use pcp_core::patches::FLAT;
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
        let made = self.patches.embed(&self.readout, &Pixels { side, pixels: &pixels }, &Cancel::default())?;
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
        let strides = || [("strides", Attribute::Ints(vec![settings.stride as i64; 2]))];
        let mut add = |kind: &str, inputs: &[&str], output: &str, attributes: &[(&str, Attribute)]| {
            let next = operation(kind, inputs, output, attributes);
            made = std::mem::replace(&mut made, Message::new()).message(1, &next);
        };
        // The contrast does not depend on a constant; around zero, squares keep more digits.
        add("Sub", &["input", "half"], "centred", &[]);
        add("Mul", &["centred", "centred"], "squares", &[]);
        add("Conv", &["centred", "box"], "mean", &strides());
        add("Conv", &["squares", "box"], "power", &strides());
        add("Mul", &["mean", "mean"], "squared_mean", &[]);
        add("Sub", &["power", "squared_mean"], "population", &[]);
        add("Mul", &["population", "correction"], "variance", &[]);
        add("Add", &["variance", "flat"], "raised", &[]);
        add("Sqrt", &["raised"], "deviation", &[]);
        let positions = (side - patch) / settings.stride + 1;
        let first = |cell: usize| (cell * positions).div_ceil(cells);
        for filters in ["own", "mirror"] {
            add("Conv", &["centred", filters], &format!("{filters}.products"), &strides());
            add("Div", &[&format!("{filters}.products"), "deviation"], &format!("{filters}.scaled"), &[]);
            add("Add", &[&format!("{filters}.scaled"), "constant"], &format!("{filters}.plus"), &[]);
            add("Neg", &[&format!("{filters}.plus")], &format!("{filters}.minus"), &[]);
            for sign in ["plus", "minus"] {
                let map = format!("{filters}.{sign}.above");
                add("Sub", &[&format!("{filters}.{sign}"), "threshold"], &format!("{map}.shifted"), &[]);
                add("Relu", &[&format!("{map}.shifted")], &map, &[]);
                for cell in 0..cells * cells {
                    let (from, to) = (format!("cell{cell}.from"), format!("cell{cell}.to"));
                    add("Slice", &[&map, &from, &to, "cell.axes"], &format!("{map}.{cell}"), &[]);
                    let over = [("axes", Attribute::Ints(vec![2, 3])), ("keepdims", Attribute::Int(0))];
                    add("ReduceMean", &[&format!("{map}.{cell}")], &format!("{map}.{cell}.mean"), &over);
                }
            }
        }
        let mut parts = Vec::new();
        for cell in 0..cells * cells {
            let mirrored = cell / cells * cells + cells - 1 - cell % cells;
            for sign in ["plus", "minus"] {
                let part = format!("code{cell}.{sign}");
                let own = format!("own.{sign}.above.{cell}.mean");
                add("Add", &[&own, &format!("mirror.{sign}.above.{mirrored}.mean")], &part, &[]);
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
            tensor("own", &[k, 3, patch, patch], &self.kernels(false)),
            tensor("mirror", &[k, 3, patch, patch], &self.kernels(true)),
            tensor("constant", &[1, k, 1, 1], &self.constants()),
            tensor("readout.mean", &[1, self.readout.mean.len()], &self.readout.mean),
            tensor("readout.map", &[self.readout.map.rows, self.readout.map.dim], &self.readout.map.values),
            tensor("shortest", &[1], &[SHORTEST]),
            whole_numbers("cell.axes", &[2, 3]),
        ];
        for cell in 0..cells * cells {
            let (y, x) = (cell / cells, cell % cells);
            arrays.push(whole_numbers(&format!("cell{cell}.from"), &[first(y) as i64, first(x) as i64]));
            arrays.push(whole_numbers(&format!("cell{cell}.to"), &[first(y + 1) as i64, first(x + 1) as i64]));
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

    /// The filters as kernels `[k, 3, patch, patch]` that sum to zero, or their mirror images.
    fn kernels(&self, mirrored: bool) -> Vec<f32> {
        let (patch, filters) = (self.patches.settings().patch, self.patches.filters());
        let numbers = patch * patch * 3;
        let mut out = Vec::with_capacity(filters.rows * numbers);
        for row in filters.values.chunks_exact(filters.dim) {
            let mean = row[..numbers].iter().map(|f| f64::from(*f)).sum::<f64>() / numbers as f64;
            for (channel, y, x) in (0..numbers).map(|i| (i / (patch * patch), i / patch % patch, i % patch)) {
                let x = if mirrored { patch - 1 - x } else { x };
                out.push((f64::from(row[(y * patch + x) * 3 + channel]) - mean) as f32);
            }
        }
        out
    }

    /// What every filter adds.
    fn constants(&self) -> Vec<f32> {
        let filters = self.patches.filters();
        filters.values.chunks_exact(filters.dim).map(|row| row[filters.dim - 1]).collect()
    }
}
