//! Patch features as ONNX operations.
//!
//! With the filter `f` made to sum to zero, the product of a filter with a patch whose contrast is normalised is a convolution with
//! `f`, divided by the deviation of the patch, which two more convolutions give.

use super::{Attribute, OnnxFile};
use pcp_core::patches::{FLAT, Patches, Second};
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
            add_above(file, &named(""), "threshold");
            add_cells(file, &level_image, filters, cells);
        }
        add_grid(file, &level_image, cells, settings.level(side, level).positions);
        file.array(&named("own"), &[k, 3, patch, patch], &kernels(patches, level, false));
        file.array(&named("mirror"), &[k, 3, patch, patch], &kernels(patches, level, true));
        file.array(&named("constant"), &[1, k, 1, 1], &constants(patches, level));
    }
    let mut parts: Vec<String> =
        (0..settings.levels).flat_map(|level| add_code(file, &format!("level{level}"), cells)).collect();
    if let Some(second) = patches.second() {
        add_second(file, patches, second);
        parts.extend(add_code(file, "second", cells));
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
}

/// What the products `NAME.plus` and their negatives have above a threshold, for every filter and place: `NAME.plus.above`, `NAME.minus.above`.
fn add_above(file: &mut OnnxFile, name: &str, threshold: &str) {
    let named = |part: &str| format!("{name}{part}");
    file.add("Neg", &[&named(".plus")], &named(".minus"), &[]);
    for sign in [".plus", ".minus"] {
        let map = named(&format!("{sign}.above"));
        file.add("Sub", &[&named(sign), threshold], &format!("{map}.shifted"), &[]);
        file.add("Relu", &[&format!("{map}.shifted")], &map, &[]);
    }
}

/// The means of these over the cells of the grid `of`: `OF.FILTERS.SIGN.above.CELL.mean`.
fn add_cells(file: &mut OnnxFile, of: &str, filters: &str, cells: usize) {
    for (sign, cell) in ["plus", "minus"].into_iter().flat_map(|sign| (0..cells * cells).map(move |cell| (sign, cell)))
    {
        let map = format!("{of}.{filters}.{sign}.above");
        let (from, to) = (format!("{of}.cell{cell}.from"), format!("{of}.cell{cell}.to"));
        file.add("Slice", &[&map, &from, &to, "cell.axes"], &format!("{map}.{cell}"), &[]);
        let over = [("axes", Attribute::Ints(vec![2, 3])), ("keepdims", Attribute::Int(0))];
        file.add("ReduceMean", &[&format!("{map}.{cell}")], &format!("{map}.{cell}.mean"), &over);
    }
}

/// The grid `of`: where the cells of `positions` places a side begin and end.
fn add_grid(file: &mut OnnxFile, of: &str, cells: usize, positions: usize) {
    let first = |cell: usize| (cell * positions).div_ceil(cells) as i64;
    for cell in 0..cells * cells {
        let (y, x) = (cell / cells, cell % cells);
        file.whole_numbers(&format!("{of}.cell{cell}.from"), &[first(y), first(x)]);
        file.whole_numbers(&format!("{of}.cell{cell}.to"), &[first(y + 1), first(x + 1)]);
    }
}

/// The parts of the code of `of`, twice as large: every cell with the mirrored one of the mirror image.
fn add_code(file: &mut OnnxFile, of: &str, cells: usize) -> Vec<String> {
    let mut parts = Vec::new();
    for cell in 0..cells * cells {
        let mirrored = cell / cells * cells + cells - 1 - cell % cells;
        for sign in ["plus", "minus"] {
            let part = format!("{of}.code{cell}.{sign}");
            let (own, mirror) =
                (format!("{of}.own.{sign}.above.{cell}.mean"), format!("{of}.mirror.{sign}.above.{mirrored}.mean"));
            file.add("Add", &[&own, &mirror], &part, &[]);
            parts.push(part);
        }
    }
    parts
}

/// The second layer on top of the maps of level 0.
fn add_second(file: &mut OnnxFile, patches: &Patches, second: &Second) {
    let (settings, above) = (patches.settings(), &patches.settings().second);
    let (areas, positions) = (patches.areas(0), settings.level(patches.side(), 0).positions);
    // The mean over areas, of lines and then of columns.
    let mut means = vec![0.0f32; areas * positions];
    for (area, row) in means.chunks_exact_mut(positions).enumerate() {
        let first = |area: usize| (area * positions).div_ceil(areas);
        let own = first(area)..first(area + 1);
        let share = 1.0 / own.len() as f32;
        row[own].fill(share);
    }
    let turned: Vec<f32> = (0..positions * areas).map(|i| means[i % areas * positions + i / areas]).collect();
    file.array("second.lines", &[areas, positions], &means);
    file.array("second.columns", &[positions, areas], &turned);
    for filters in ["own", "mirror"] {
        for sign in ["plus", "minus"] {
            let (map, name) = (format!("level0.{filters}.{sign}.above"), format!("second.{filters}.{sign}"));
            file.add("MatMul", &["second.lines", &map], &format!("{name}.lines"), &[]);
            file.add("MatMul", &[&format!("{name}.lines"), "second.columns"], &format!("{name}.areas"), &[]);
        }
        let (plus, minus) = (format!("second.{filters}.plus.areas"), format!("second.{filters}.minus.areas"));
        let (both, root) = (format!("second.{filters}.areas"), format!("second.{filters}.roots"));
        file.add("Concat", &[&plus, &minus], &both, &[("axis", Attribute::Int(1))]);
        file.add("Sqrt", &[&both], &root, &[]);
    }
    file.add("Add", &["second.own.roots", "second.mirror.roots"], "second.sums", &[]);
    file.add("Sub", &["second.sums", "second.mean"], "second.evens", &[]);
    file.add("Sub", &["second.own.roots", "second.mirror.roots"], "second.odds", &[]);
    file.add("Conv", &["second.evens", "second.even"], "second.even.numbers", &[]);
    file.add("Conv", &["second.odds", "second.odd"], "second.odd.numbers", &[]);
    let both = ["second.even.numbers", "second.odd.numbers"];
    file.add("Concat", &both, "second.numbers", &[("axis", Attribute::Int(1))]);
    // Patches of unit length.
    file.add("Mul", &["second.numbers", "second.numbers"], "second.squares", &[]);
    file.add("Conv", &["second.squares", "second.box"], "second.powers", &[]);
    file.add("Sqrt", &["second.powers"], "second.lengths", &[]);
    file.add("Max", &["second.lengths", "second.least"], "second.length", &[]);
    for filters in ["own", "mirror"] {
        let named = |name: &str| format!("second.{filters}{name}");
        file.add("Conv", &["second.numbers", &named("")], &named(".products"), &[]);
        file.add("Div", &[&named(".products"), "second.length"], &named(".plus"), &[]);
        add_above(file, &named(""), "second.threshold");
        add_cells(file, "second", filters, settings.cells);
    }
    add_grid(file, "second", settings.cells, areas - above.patch + 1);
    let (columns, patch, numbers) = (second.mean.len(), above.patch, second.even.rows + second.odd.rows);
    file.array("second.mean", &[1, columns, 1, 1], &second.mean);
    for (name, map) in [("second.even", &second.even), ("second.odd", &second.odd)] {
        file.array(name, &[map.rows, columns, 1, 1], &map.values);
    }
    file.array("second.box", &[1, numbers, patch, patch], &vec![1.0; numbers * patch * patch]);
    file.array("second.least", &[1], &[1e-12]);
    file.array("second.threshold", &[1], &[above.threshold]);
    for (name, mirrored) in [("second.own", false), ("second.mirror", true)] {
        file.array(name, &[above.centroids, numbers, patch, patch], &second_kernels(second, patch, mirrored));
    }
}

/// The filters of the second layer as kernels `[centroids, numbers, patch, patch]`, or their mirror images, in which odd numbers have the other sign.
fn second_kernels(second: &Second, patch: usize, mirrored: bool) -> Vec<f32> {
    let numbers = second.even.rows + second.odd.rows;
    let mut out = Vec::with_capacity(second.filters.values.len());
    for row in second.filters.values.chunks_exact(second.filters.dim) {
        for (number, y, x) in (0..row.len()).map(|i| (i / (patch * patch), i / patch % patch, i % patch)) {
            let x = if mirrored { patch - 1 - x } else { x };
            let value = row[(y * patch + x) * numbers + number];
            out.push(if mirrored && number >= second.even.rows { -value } else { value });
        }
    }
    out
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
