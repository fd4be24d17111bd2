//! Jobs on images: training, embedding, reports, export.

use crate::array::array;
use crate::matrices::json;
use crate::task::run;
use numpy::{PyArray2, PyReadonlyArray3, PyUntypedArrayMethods};
use pcp::data::folder::{ImageFile, list};
use pcp::data::{Image, Pictures};
use pcp::embed::AnyModel;
use pcp::jobs::{
    self, Caller, ExportFormat, ExportOptions, ExportPart, ReportOptions, ResumeOptions, RunRequest, TrainOptions,
    TrainResult,
};
use pcp::model::{Embedded, WhichWeights};
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::{make_folder_atomic, make_parent, require_empty};
use pcp_core::matrix::Matrix;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;

pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(train, module)?)?;
    module.add_function(wrap_pyfunction!(resume, module)?)?;
    module.add_function(wrap_pyfunction!(report, module)?)?;
    module.add_function(wrap_pyfunction!(export, module)?)?;
    module.add_function(wrap_pyfunction!(write_images, module)?)?;
    module.add_class::<Model>()
}

/// What Python's classes say they were called with.
fn caller() -> Caller {
    Caller { command: "pcp.train(...) in Python".into(), revision: pcp_cli::REVISION.into() }
}

/// Trains; returns the run folder and its result as JSON. Settings are `section.key=value`.
#[pyfunction]
#[pyo3(signature = (data, out, minutes, presets, settings, data_dir, init_from, overwrite, no_report, progress))]
#[allow(clippy::too_many_arguments)]
fn train(
    py: Python<'_>,
    data: String,
    out: Option<PathBuf>,
    minutes: Option<f64>,
    presets: Vec<String>,
    settings: Vec<String>,
    data_dir: Option<PathBuf>,
    init_from: Option<PathBuf>,
    overwrite: bool,
    no_report: bool,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<(PathBuf, String)> {
    let done = run(py, progress.as_ref(), move |observer| {
        let mut request = RunRequest { minutes, presets, data_dir, init_from, ..RunRequest::new(data) };
        for setting in &settings {
            request = request.set(setting)?;
        }
        jobs::train(
            &TrainOptions { request, out, overwrite, no_report, caller: caller(), ..TrainOptions::default() },
            observer,
        )
    })?;
    finished(py, done)
}

/// Goes on with a run, as `train`.
#[pyfunction]
#[pyo3(signature = (path, no_report, progress))]
fn resume(
    py: Python<'_>,
    path: PathBuf,
    no_report: bool,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<(PathBuf, String)> {
    let options = ResumeOptions { no_report, caller: caller(), ..ResumeOptions::new(path) };
    let done = run(py, progress.as_ref(), move |observer| jobs::resume(&options, observer))?;
    finished(py, done)
}

fn finished(py: Python<'_>, done: TrainResult) -> PyResult<(PathBuf, String)> {
    Ok((done.run, json(py, &done.result)?))
}

/// Writes a page about runs; returns its path.
#[pyfunction]
#[pyo3(signature = (runs, out, max_images, progress))]
fn report(
    py: Python<'_>,
    runs: Vec<PathBuf>,
    out: Option<PathBuf>,
    max_images: Option<usize>,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<PathBuf> {
    let mut options = ReportOptions { out, ..ReportOptions::new(runs) };
    options.max_images = max_images.unwrap_or(options.max_images);
    run(py, progress.as_ref(), move |observer| Ok(jobs::report(&options, observer)?.out))
}

/// Writes the model of a run as `onnx` or `safetensors`; returns the file. Of patches and a network side by side, `part` is one of them.
#[pyfunction]
fn export(
    py: Python<'_>,
    model: PathBuf,
    to: &str,
    out: PathBuf,
    part: Option<&str>,
    with_preprocess: bool,
    best: bool,
) -> PyResult<PathBuf> {
    let to = match to {
        "onnx" => ExportFormat::Onnx,
        "safetensors" => ExportFormat::Safetensors,
        _ => return Err(PyValueError::new_err(format!("to is {to:?}; it may be 'onnx' or 'safetensors'"))),
    };
    let part = match part {
        None => None,
        Some("network") => Some(ExportPart::Network),
        Some("patches") => Some(ExportPart::Patches),
        Some(part) => return Err(PyValueError::new_err(format!("part is {part:?}; it may be 'network' or 'patches'"))),
    };
    run(py, None, move |observer| {
        let options = ExportOptions { part, out: Some(out), with_preprocess, best, ..ExportOptions::new(model, to) };
        Ok(jobs::export(&options, observer)?.out)
    })
}

/// Writes images as PNG files of these names into the new folder `folder`.
#[pyfunction]
fn write_images(
    py: Python<'_>,
    folder: PathBuf,
    names: Vec<String>,
    images: Vec<PyReadonlyArray3<'_, u8>>,
) -> PyResult<()> {
    let images = images.iter().map(image).collect::<PyResult<Vec<_>>>()?;
    run(py, None, move |observer| {
        if images.is_empty() {
            return Err(Error::data("there are no images", "give at least one"));
        }
        require_empty(&folder)?;
        make_folder_atomic(&folder, |folder| {
            for (name, image) in names.iter().zip(&images) {
                observer.cancel().check()?;
                let path = folder.join(name);
                make_parent(&path)?;
                let (width, height) = (image.width as u32, image.height as u32);
                image::save_buffer(&path, &image.pixels, width, height, image::ColorType::Rgb8)
                    .map_err(|e| Error::file(format!("cannot write {}: {e}", path.display()), "check the disk"))?;
            }
            Ok(())
        })
    })
}

/// A trained model: a network, clusters of patches, or both side by side.
#[pyclass(frozen, module = "pcp._pcp")]
struct Model(Arc<AnyModel>);

/// Features, the names of their rows, and the names of files that could not be read with the reasons.
type FilesAnswer<'py> = (Bound<'py, PyArray2<f32>>, Vec<String>, Vec<(String, String)>);

#[pymethods]
impl Model {
    /// Opens a run folder or a model file.
    #[new]
    fn open(py: Python<'_>, path: PathBuf, best: bool) -> PyResult<Model> {
        let model = run(py, None, move |_| AnyModel::open(&path, WhichWeights::best(best)))?;
        Ok(Model(Arc::new(model)))
    }

    /// What it is: `network`, `patches` or `both`.
    #[getter]
    fn kind(&self) -> &'static str {
        match &*self.0 {
            AnyModel::Network(model) if model.card.combination.is_some() => "both",
            AnyModel::Network(_) => "network",
            AnyModel::Patches(..) => "patches",
            AnyModel::Encoder(_) => "encoder",
        }
    }

    /// How images are made for it (of both: for the network), as JSON.
    #[getter]
    fn preprocess(&self, py: Python<'_>) -> PyResult<String> {
        let said = match &*self.0 {
            AnyModel::Network(model) => {
                let card = &model.card;
                serde_json::json!({ "size": card.size, "margin": card.margin, "mean": card.mean, "std": card.std })
            }
            _ => {
                let view = self.0.view().augmenter;
                serde_json::json!({ "size": view.size, "margin": view.margin, "mean": view.mean, "std": view.std })
            }
        };
        json(py, &said)
    }

    /// Features of images in memory, `[height, width, 3]` each.
    fn features<'py>(
        &self,
        py: Python<'py>,
        images: Vec<PyReadonlyArray3<'py, u8>>,
        features: String,
        progress: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let images = images.iter().map(image).collect::<PyResult<Vec<_>>>()?;
        let (rows, _) = self.embedded(py, move || Ok(Pictures::of(images)), features, progress)?;
        array(py, rows)
    }

    /// Features of image files: a list of paths, of which a folder stands for all images below it.
    fn features_of_files<'py>(
        &self,
        py: Python<'py>,
        paths: Vec<PathBuf>,
        features: String,
        progress: Option<Bound<'py, PyAny>>,
    ) -> PyResult<FilesAnswer<'py>> {
        let list = move || Ok(Pictures::Files(Arc::new(files(paths)?)));
        let (rows, found) = self.embedded(py, list, features, progress)?;
        let names = found.rows.into_iter().map(|row| row.file).collect();
        let bad = found.bad.into_iter().map(|bad| (bad.name, bad.reason)).collect();
        Ok((array(py, rows)?, names, bad))
    }
}

impl Model {
    fn embedded(
        &self,
        py: Python<'_>,
        pictures: impl FnOnce() -> Result<Pictures> + Send + 'static,
        features: String,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<(Matrix, Embedded)> {
        let model = self.0.clone();
        run(py, progress.as_ref(), move |observer| {
            model.check_features(&features)?;
            let pictures = pictures()?;
            observer.begin("embedding", pictures.len());
            let made = model.features_of(&pictures, &features, observer.cancel(), &|units| observer.advance(units));
            observer.end();
            made
        })
    }
}

/// The images that `paths` name: those of one folder by their names below it, others by their paths.
fn files(paths: Vec<PathBuf>) -> Result<Vec<ImageFile>> {
    if let [one] = &paths[..] {
        return list(one);
    }
    let mut all = Vec::new();
    for path in paths {
        for file in list(&path)? {
            all.push(ImageFile { name: file.path.display().to_string(), ..file });
        }
    }
    match all.is_empty() {
        true => Err(Error::usage("there is no image to embed", "give a folder or files of images")),
        false => Ok(all),
    }
}

fn image(array: &PyReadonlyArray3<'_, u8>) -> PyResult<Image> {
    let [height, width, channels] = [array.shape()[0], array.shape()[1], array.shape()[2]];
    let pixels = array.as_slice().map(<[u8]>::to_vec).map_err(|_| PyValueError::new_err("not C-contiguous"))?;
    if channels != 3 || pixels.is_empty() {
        return Err(PyValueError::new_err(format!("an image is {height} x {width} x {channels}, not h x w x 3")));
    }
    Ok(Image { width, height, pixels })
}
