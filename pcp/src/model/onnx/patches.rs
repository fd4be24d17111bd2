//! Patch features as ONNX operations.
//!
//! With the filter `f` made to sum to zero, the product of a filter with a patch whose contrast is normalised is a convolution with
//! `f`, divided by the deviation of the patch, which two more convolutions give.

use super::{Attribute, OnnxFile};
use pcp_core::patches::{FLAT, Patches};
use pcp_core::readout::Readout;

/// The operations that make patch features, unit vectors, of `image`, with values from 0 to 1.
pub(crate) fn onnx_patches(file: &mut OnnxFile, patches: &Patches, readout: &Readout, image: &str, output: &str) {
    let settings = patches.settings();
    let (side, patch, k, cells) = (patches.side(), settings.patch, settings.centroids, settings.cells);
    let numbers = patch * patch * 3;
    // The contrast does not depend on a constant; around zero, squares keep more digits.
    file.add("Sub", &[image, "half"], "level0", &[]);
    for level in 0..settings.levels {
        let level_image = format!("level{level}");
        if level > 0 {
            let two = || Attribute::Ints(vec![2; 2]);
            let finer = format!("level{}", level - 1);
            file.add("AveragePool", &[&finer], &level_image, &[("kernel_shape", two()), ("strides", two())]);
        }
        let named = |name: &str| format!("{level_image}.{name}");
        let stride = settings.level(side, level).stride as i64;
        let strides = || [("strides", Attribute::Ints(vec![stride; 2]))];
        file.add("Mul", &[&level_image, &level_image], &named("squares"), &[]);
        file.add("Conv", &[&level_image, "box"], &named("mean"), &strides());
        file.add("Conv", &[&named("squares"), "box"], &named("power"), &strides());
        file.add("Mul", &[&named("mean"), &named("mean")], &named("squared_mean"), &[]);
        file.add("Sub", &[&named("power"), &named("squared_mean")], &named("population"), &[]);
        file.add("Mul", &[&named("population"), "correction"], &named("variance"), &[]);
        file.add("Add", &[&named("variance"), "flat"], &named("raised"), &[]);
        file.add("Sqrt", &[&named("raised")], &named("deviation"), &[]);
        for filters in ["own", "mirror"] {
            let named = |name: &str| format!("{level_image}.{filters}{name}");
            file.add("Conv", &[&level_image, &named("")], &named(".products"), &strides());
            file.add("Div", &[&named(".products"), &format!("{level_image}.deviation")], &named(".scaled"), &[]);
            file.add("Add", &[&named(".scaled"), &format!("{level_image}.constant")], &named(".plus"), &[]);
            file.add("Neg", &[&named(".plus")], &named(".minus"), &[]);
            for sign in ["plus", "minus"] {
                let map = named(&format!(".{sign}.above"));
                file.add("Sub", &[&named(&format!(".{sign}")), "threshold"], &format!("{map}.shifted"), &[]);
                file.add("Relu", &[&format!("{map}.shifted")], &map, &[]);
                for cell in 0..cells * cells {
                    let (from, to) = (format!("{level_image}.cell{cell}.from"), format!("{level_image}.cell{cell}.to"));
                    file.add("Slice", &[&map, &from, &to, "cell.axes"], &format!("{map}.{cell}"), &[]);
                    let over = [("axes", Attribute::Ints(vec![2, 3])), ("keepdims", Attribute::Int(0))];
                    file.add("ReduceMean", &[&format!("{map}.{cell}")], &format!("{map}.{cell}.mean"), &over);
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
            file.add("Add", &[&own, &format!("level{level}.mirror.{sign}.above.{mirrored}.mean")], &part, &[]);
            parts.push(part);
        }
    }
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    file.add("Concat", &parts, "both", &[("axis", Attribute::Int(1))]);
    file.add("Mul", &["both", "half"], "codes", &[]);
    file.add("Sqrt", &["codes"], "roots", &[]);
    file.add("Sub", &["roots", "patches.readout.mean"], "roots.centred", &[]);
    file.add("Gemm", &["roots.centred", "patches.readout.map"], "patches.read", &[("transB", Attribute::Int(1))]);
    file.unit("patches.read", output);

    file.array("half", &[1], &[0.5]);
    file.array("box", &[1, 3, patch, patch], &vec![1.0 / numbers as f32; numbers]);
    file.array("correction", &[1], &[numbers as f32 / (numbers - 1) as f32]);
    file.array("flat", &[1], &[FLAT]);
    file.array("threshold", &[1], &[settings.threshold]);
    file.array("patches.readout.mean", &[1, readout.mean.len()], &readout.mean);
    file.array("patches.readout.map", &[readout.map.rows, readout.map.dim], &readout.map.values);
    file.whole_numbers("cell.axes", &[2, 3]);
    for level in 0..settings.levels {
        let named = |name: &str| format!("level{level}.{name}");
        file.array(&named("own"), &[k, 3, patch, patch], &kernels(patches, level, false));
        file.array(&named("mirror"), &[k, 3, patch, patch], &kernels(patches, level, true));
        file.array(&named("constant"), &[1, k, 1, 1], &constants(patches, level));
        let first = |cell: usize| (cell * settings.level(side, level).positions).div_ceil(cells) as i64;
        for cell in 0..cells * cells {
            let (y, x) = (cell / cells, cell % cells);
            file.whole_numbers(&named(&format!("cell{cell}.from")), &[first(y), first(x)]);
            file.whole_numbers(&named(&format!("cell{cell}.to")), &[first(y + 1), first(x + 1)]);
        }
    }
}

/// The filters of a level, a row each.
fn level_filters(patches: &Patches, level: usize) -> std::slice::ChunksExact<'_, f32> {
    let (filters, k) = (patches.filters(), patches.settings().centroids);
    filters.values[level * k * filters.dim..][..k * filters.dim].chunks_exact(filters.dim)
}

/// The filters of a level as kernels `[k, 3, patch, patch]` that sum to zero, or their mirror images.
fn kernels(patches: &Patches, level: usize, mirrored: bool) -> Vec<f32> {
    let patch = patches.settings().patch;
    let numbers = patch * patch * 3;
    let mut out = Vec::new();
    for row in level_filters(patches, level) {
        let mean = row[..numbers].iter().map(|f| f64::from(*f)).sum::<f64>() / numbers as f64;
        for (channel, y, x) in (0..numbers).map(|i| (i / (patch * patch), i / patch % patch, i % patch)) {
            let x = if mirrored { patch - 1 - x } else { x };
            out.push((f64::from(row[(y * patch + x) * 3 + channel]) - mean) as f32);
        }
    }
    out
}

/// What every filter of a level adds.
fn constants(patches: &Patches, level: usize) -> Vec<f32> {
    level_filters(patches, level).map(|row| row[row.len() - 1]).collect()
}
