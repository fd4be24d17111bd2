//! The panels of figures, drawn from finished runs.

use crate::paper::{Found, Panel, PanelRecord, Scale, Shows};
use crate::progress;
use pcp::jobs::{
    EvalClustersOptions, EvalTsneOptions, HeatSheetOptions, HeatSheetResult, eval_clusters, eval_tsne, heat_sheet,
};
use pcp::run::RunFolder;
use pcp_core::cancel::Cancel;
use pcp_core::error::Result;
use pcp_core::io::atomic::make_tidy_folder;
use std::path::{Path, PathBuf};

/// Draws `panel` into the `folder` of its scale, unless that has been done from this run. `dir` is where the data sets are.
pub fn draw(
    panel: &Panel,
    scale: Scale,
    run: &RunFolder,
    folder: &Path,
    dir: Option<&str>,
    quiet: bool,
    stop: &Cancel,
) -> Result<()> {
    let result = run.read_result()?;
    if let Some(known) = PanelRecord::read(folder, panel)?
        && result.is_some_and(|result| result.seed == known.seed && result.revision == known.revision)
        && folder.join(panel.id()).is_dir()
        && !(lacks_boxes(&known) && voc(scale, dir).is_some())
    {
        return Ok(());
    }
    let pictures = folder.join(panel.id());
    make_tidy_folder(&pictures)?;
    let found = match panel.shows {
        Shows::Clusters => {
            let observer = progress::job(quiet, stop);
            let drawn = EvalTsneOptions { out: Some(pictures), ..EvalTsneOptions::new(run.path()) };
            let trustworthiness = eval_tsne(&drawn, &observer)?.trustworthiness;
            let score = eval_clusters(&EvalClustersOptions::new(run.path()), &observer)?.score;
            Found::Clusters { score, trustworthiness }
        }
        Shows::Heat => {
            let out = pictures.join("heat.png");
            let sheet = HeatSheetOptions { run: run.path().to_path_buf(), voc: voc(scale, dir), out };
            let HeatSheetResult { states, images } = heat_sheet(&sheet, &progress::job(quiet, stop))?;
            Found::Heat { states, images }
        }
    };
    PanelRecord::new(panel, scale, run, found)?.write(folder)
}

/// Where images with boxes are, if they are.
fn voc(scale: Scale, dir: Option<&str>) -> Option<PathBuf> {
    let folder = dir.filter(|_| scale != Scale::Tiny).map(|dir| Path::new(dir).join("VOCdevkit").join("VOC2007"));
    folder.filter(|voc| voc.is_dir())
}

/// Whether heat was drawn without boxes to measure it in.
fn lacks_boxes(record: &PanelRecord) -> bool {
    matches!(&record.found, Found::Heat { states, .. } if states.iter().all(|state| state.inside.is_none()))
}
