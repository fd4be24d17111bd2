//! Jobs on images: training, embedding, reports, export.

use crate::array::array;
use crate::matrices::json;
use crate::task::run;
use numpy::{PyArray2, PyReadonlyArray3, PyUntypedArrayMethods};
use pcp::data::folder::{ImageFile, list};
use pcp::data::{Image, Pictures};
use pcp::jobs::{
    self, Caller, ExportFormat, ExportOptions, ReportOptions, ResumeOptions, RunRequest, TrainOptions, TrainResult,
};
use pcp::model::{Model, WhichWeights};
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::{make_folder_atomic, make_parent, require_empty};
use pcp_core::matrix::Matrix;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;

/// Images that are embedded at once.
const BATCH: usize = 128;

pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(train, module)?)?;
    module.add_function(wrap_pyfunction!(resume, module)?)?;
    module.add_function(wrap_pyfunction!(report, module)?)?;
    module.add_function(wrap_pyfunction!(export, module)?)?;
    module.add_function(wrap_pyfunction!(write_images, module)?)?;
    module.add_class::<Network>()
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
        jobs::train(&TrainOptions { request, out, overwrite, no_report, caller: caller() }, observer)
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

/// Writes a network as `onnx` or `safetensors`; returns the file.
#[pyfunction]
fn export(
    py: Python<'_>,
    model: PathBuf,
    to: &str,
    out: PathBuf,
    with_preprocess: bool,
    best: bool,
) -> PyResult<PathBuf> {
    let to = match to {
        "onnx" => ExportFormat::Onnx,
        "safetensors" => ExportFormat::Safetensors,
        _ => return Err(PyValueError::new_err(format!("to is {to:?}; it may be 'onnx' or 'safetensors'"))),
    };
    let options = ExportOptions { out: Some(out), with_preprocess, best, ..ExportOptions::new(model, to) };
    run(py, None, move |observer| Ok(jobs::export(&options, observer)?.out))
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

/// A trained network.
#[pyclass(frozen, module = "pcp._pcp")]
struct Network(Arc<Model>);

/// Features, the names and labels of their rows, and the names of files that could not be read with the reasons.
type FilesAnswer<'py> = (Bound<'py, PyArray2<f32>>, Vec<String>, Vec<Option<String>>, Vec<(String, String)>);

#[pymethods]
impl Network {
    /// Opens a run folder or a model file.
    #[new]
    fn open(py: Python<'_>, path: PathBuf, best: bool) -> PyResult<Network> {
        let model = run(py, None, move |_| Model::open_weights(path, WhichWeights::best(best)))?;
        Ok(Network(Arc::new(model)))
    }

    /// The file of its weights.
    #[getter]
    fn file(&self) -> Option<PathBuf> {
        self.0.file.clone()
    }

    /// The description of its input, as JSON.
    #[getter]
    fn card(&self, py: Python<'_>) -> PyResult<String> {
        json(py, &self.0.card)
    }

    /// Features of images in memory, `[height, width, 3]` each.
    fn features<'py>(
        &self,
        py: Python<'py>,
        images: Vec<PyReadonlyArray3<'py, u8>>,
        kind: String,
        progress: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let images = images.iter().map(image).collect::<PyResult<Vec<_>>>()?;
        let model = self.0.clone();
        let features = run(py, progress.as_ref(), move |observer| {
            let kind = model.feature_kind(&kind)?;
            observer.begin("embedding", images.len());
            let mut all = Matrix::default();
            for batch in images.chunks(BATCH) {
                let (model, batch, units) = (model.clone(), batch.to_vec(), batch.len());
                let made = observer.cancel().run(move || model.features(batch, kind))?;
                (all.rows, all.dim) = (all.rows + made.rows, made.dim);
                all.values.extend(made.values);
                observer.advance(units);
            }
            observer.end();
            Ok(all)
        })?;
        array(py, features)
    }

    /// Features of image files: a list of paths, of which a folder stands for all images below it.
    fn features_of_files<'py>(
        &self,
        py: Python<'py>,
        paths: Vec<PathBuf>,
        kind: String,
        progress: Option<Bound<'py, PyAny>>,
    ) -> PyResult<FilesAnswer<'py>> {
        let model = self.0.clone();
        let (features, found) = run(py, progress.as_ref(), move |observer| {
            let kind = model.feature_kind(&kind)?;
            let pictures = Pictures::Files(Arc::new(files(paths)?));
            observer.begin("embedding", pictures.len());
            let made = model.features_of(&pictures, kind, observer.cancel(), &|units| observer.advance(units));
            observer.end();
            made
        })?;
        let (names, labels) = found.rows.into_iter().map(|row| (row.file, row.label)).unzip();
        let bad = found.bad.into_iter().map(|bad| (bad.name, bad.reason)).collect();
        Ok((array(py, features)?, names, labels, bad))
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
