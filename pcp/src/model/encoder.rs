//! An image encoder of another tool: an ONNX model, run by tract.
//!
//! Images are computed one by one, in parallel, so that a row does not depend on others; a model whose batch is fixed gets that many at once.

use super::Preprocess;
use crate::data::{Batch, CleanView};
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result, listed};
use pcp_core::io::atomic::has_file;
use pcp_core::matrix::Matrix;
use rayon::prelude::*;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tract_onnx::pb::{
    ModelProto, ValueInfoProto, tensor_shape_proto::dimension::Value as Dim, type_proto::Value as Kind,
};
use tract_onnx::prelude::*;

/// Outputs that are taken by their names before others.
const KNOWN: [&str; 4] = ["embedding", "image_embeds", "pooler_output", "sentence_embedding"];
/// ONNX's number of f32.
const FLOAT: i32 = 1;

/// An image encoder.
pub struct Encoder {
    plan: Arc<TypedRunnableModel>,
    /// How images are brought to what it takes.
    pub view: CleanView,
    /// Images of a call.
    batch: usize,
    /// Whether channels come last.
    channels_last: bool,
    /// The file.
    pub file: PathBuf,
    /// The output that is taken.
    pub output: String,
    /// Whether its own tool resizes in another way.
    pub bicubic: bool,
}

impl Encoder {
    /// Opens an ONNX file. `output` is the name of an output; `embedding` takes one that is called so, or like one, or is a row per image. How
    /// images are made is as `asked`, as a `preprocessor_config.json` beside the file says, or as the file itself says.
    pub fn open(path: &Path, output: &str, asked: Preprocess) -> Result<Encoder> {
        let cannot = |e: TractError| {
            let reasons = e.chain().map(|e| e.to_string()).collect::<Vec<_>>().join(": ");
            Error::file(
                format!("{} cannot be run: {reasons}", path.display()),
                "export it again, as an ONNX image encoder of opset 17",
            )
        };
        path.metadata().map_err(|e| Error::io("read", path, &e))?;
        let proto = tract_onnx::onnx().proto_model_for_path(path).map_err(cannot)?;
        let input = Input::of(&proto, path)?;
        let output = chosen(&proto, output, path)?;
        let beside = path.with_file_name("preprocessor_config.json");
        let beside = if has_file(&beside)? { Preprocess::of_config(&beside)? } else { Preprocess::default() };
        let fact = |key: &str| proto.metadata_props.iter().find(|p| p.key == key).map(|p| p.value.clone());
        let known = asked.or(beside).or(Preprocess::of_facts(fact));
        if let (Some(side), Some(size)) = (input.side, known.size)
            && side != size
        {
            let message = format!("{} takes images of {side} px, not {size}", path.display());
            return Err(Error::usage(message, "leave `size` out, or export it for another"));
        }
        let known = Preprocess { size: known.size.or(input.side), ..known };
        let view = known.view(path)?;
        let (batch, side) = (input.batch.unwrap_or(1), view.augmenter.size);
        let shape = if input.channels_last { [batch, side, side, 3] } else { [batch, 3, side, side] };
        // Beside this thread, where a panic of tract on a broken file becomes an error.
        let (from, taken) = (path.to_path_buf(), output.clone());
        let plan = Cancel::default().run_beside(move || {
            let mut model = tract_onnx::onnx().model_for_path(from)?;
            model.select_outputs_by_name([&taken])?;
            model.with_input_fact(0, f32::fact(shape).into())?.into_optimized()?.into_runnable()
        })?;
        let (file, bicubic, channels_last) = (path.to_path_buf(), known.bicubic, input.channels_last);
        Ok(Encoder { plan: plan.map_err(cannot)?, view, batch, channels_last, file, output, bicubic })
    }

    /// Features of a batch of views.
    pub(crate) fn batch(self: &Arc<Self>, batch: Batch, cancel: &Cancel) -> Result<Matrix> {
        let encoder = self.clone();
        cancel.run(move || encoder.features(&batch))?
    }

    /// Features of views, a row each.
    fn features(&self, batch: &Batch) -> Result<Matrix> {
        let calls = batch.pixels.par_chunks(self.batch * self.view.floats());
        let rows = calls.map(|views| self.call(views)).collect::<TractResult<Vec<_>>>();
        let rows = rows.map_err(|e| Error::data(format!("the network failed: {e}"), "check it with another image"))?;
        let dim = rows.first().map_or(1, |(_, dim)| *dim).max(1);
        let values = rows.into_iter().flat_map(|(values, _)| values).collect();
        Ok(Matrix::new(dim, values))
    }

    /// The values of up to `batch` views, and how many each has.
    fn call(&self, views: &[f32]) -> TractResult<(Vec<f32>, usize)> {
        let (floats, side) = (self.view.floats(), self.view.augmenter.size);
        let count = views.len() / floats;
        let mut input = vec![0.0f32; self.batch * floats];
        match self.channels_last {
            true => input[..views.len()].copy_from_slice(views),
            false => {
                for (view, planes) in views.chunks_exact(floats).zip(input.chunks_exact_mut(floats)) {
                    for (channel, plane) in planes.chunks_exact_mut(side * side).enumerate() {
                        plane.iter_mut().zip(view.iter().skip(channel).step_by(3)).for_each(|(to, from)| *to = *from);
                    }
                }
            }
        }
        let shape = if self.channels_last { [self.batch, side, side, 3] } else { [self.batch, 3, side, side] };
        let made = self.plan.run(tvec!(Tensor::from_shape(&shape, &input)?.into()))?;
        let made = made[0].cast_to::<f32>()?;
        let (shape, values) = (made.shape().to_vec(), made.to_plain_array_view::<f32>()?);
        let values: Vec<f32> = values.iter().copied().collect();
        let each = (values.len() / self.batch).max(1);
        let row = |values: &[f32]| -> Vec<f32> {
            match shape[..] {
                // Tokens: the first stands for the image.
                [_, _, dim] => values[..dim].to_vec(),
                // Maps: their means.
                [_, _, height, width] => {
                    values.chunks(height * width).map(|map| map.iter().sum::<f32>() / map.len() as f32).collect()
                }
                _ => values.to_vec(),
            }
        };
        let rows: Vec<Vec<f32>> = values.chunks(each).take(count).map(row).collect();
        let dim = rows.first().map_or(0, Vec::len);
        Ok((rows.concat(), dim))
    }
}

/// The image that a model takes.
struct Input {
    batch: Option<usize>,
    side: Option<usize>,
    channels_last: bool,
}

impl Input {
    fn of(proto: &ModelProto, path: &Path) -> Result<Input> {
        let wrong = |message: String| {
            let hint = "give an encoder with one input: images [n, 3, side, side] of f32";
            Err(Error::data(format!("{}: {message}", path.display()), hint))
        };
        let Some(graph) = &proto.graph else { return wrong("it has no graph".into()) };
        let weights: HashSet<&str> = graph.initializer.iter().map(|array| array.name.as_str()).collect();
        let inputs: Vec<&ValueInfoProto> = graph.input.iter().filter(|i| !weights.contains(i.name.as_str())).collect();
        let [input] = inputs[..] else {
            return wrong(format!("its inputs are {}", listed(inputs.iter().map(|i| &i.name))));
        };
        let Some((FLOAT, dims)) = described(input) else {
            return wrong(format!("its input {} is not of f32", input.name));
        };
        let (batch, sides, channels_last) = match dims[..] {
            [batch, Some(3) | None, height, width] => (batch, [height, width], false),
            [batch, height, width, Some(3)] => (batch, [height, width], true),
            _ => return wrong(format!("its input {} is no image", input.name)),
        };
        match sides {
            [Some(height), Some(width)] if height != width => {
                wrong(format!("its images are {height} x {width}, not square"))
            }
            [height, width] => Ok(Input { batch, side: height.or(width), channels_last }),
        }
    }
}

/// The type and the known dimensions of an input or output.
fn described(value: &ValueInfoProto) -> Option<(i32, Vec<Option<usize>>)> {
    let Kind::TensorType(tensor) = value.r#type.as_ref()?.value.as_ref()?;
    let dims = tensor.shape.as_ref()?.dim.iter().map(|dim| match &dim.value {
        Some(Dim::DimValue(n)) if *n > 0 => Some(*n as usize),
        _ => None,
    });
    Some((tensor.elem_type, dims.collect()))
}

/// The output called `asked`; `embedding` is also one of a similar name, or the first with a row per image, or the first.
fn chosen(proto: &ModelProto, asked: &str, path: &Path) -> Result<String> {
    let outputs: &[ValueInfoProto] = proto.graph.as_ref().map_or(&[], |graph| &graph.output);
    let named = |name: &str| outputs.iter().find(|output| output.name == name);
    let rows = || outputs.iter().find(|output| described(output).is_some_and(|(_, dims)| dims.len() == 2));
    let found = match named(asked) {
        None if asked == "embedding" => KNOWN.iter().find_map(|name| named(name)).or_else(rows).or(outputs.first()),
        found => found,
    };
    found.map(|output| output.name.clone()).ok_or_else(|| {
        let message = format!("{} has no output {asked}", path.display());
        Error::usage(message, format!("its outputs are {}", listed(outputs.iter().map(|output| &output.name))))
    })
}
