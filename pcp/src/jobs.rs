//! Everything the program does, one function per verb: options in, a typed result out, an observer that is told how far it is
//! and can cancel it.
//!
//! | verb | function | options | result |
//! |---|---|---|---|
//! | train a network | [`train`](fn@train) | [`TrainOptions`] | [`TrainResult`] |
//! | go on with a run | [`resume`] | [`ResumeOptions`] | [`TrainResult`] |
//! | train a finished run further | [`extend`] | [`ExtendOptions`] | [`TrainResult`] |
//! | say what a run would take | [`forecast`] | [`RunRequest`] | [`Forecast`] |
//! | embed images | [`embed`](fn@embed) | [`EmbedOptions`] | [`EmbedResult`] |
//! | cluster embeddings | [`cluster`](fn@cluster) | [`ClusterOptions`] | [`ClusterResult`] |
//! | purify clusters | [`purify`](fn@purify) | [`PurifyOptions`] | [`PurifyResult`] |
//! | assign images to a run's clusters | [`assign`] | [`AssignOptions`] | [`AssignResult`] |
//! | find images like one | [`neighbours`] | [`NeighboursOptions`] | [`NeighboursResult`] |
//! | look at pictures, without a network | [`look`](fn@look) | [`LookOptions`] | [`LookResult`] |
//! | find copies of pictures, without a network | [`copies`](fn@copies) | [`CopiesOptions`] | [`CopiesResult`] |
//! | find near duplicates in embeddings | [`duplicates`](fn@duplicates) | [`DuplicatesOptions`] | [`DuplicatesResult`] |
//! | measure a run's features | [`eval_knn`], [`eval_linear`], [`eval_finetune`], [`eval_heatmap`], [`eval_clusters`], [`eval_tsne`] | [`EvalKnnOptions`] ... | [`KnnReport`] ... |
//! | draw what a run's snapshots look at | [`heat_sheet`] | [`HeatSheetOptions`] | [`HeatSheetResult`] |
//! | train a detector, or go on | [`detect_train`], [`detect_resume`] | [`DetectTrainOptions`] | [`DetectorResult`](crate::run::DetectorResult) |
//! | measure a detector | [`detect_eval`] | [`DetectEvalOptions`] | [`DetectionReport`] |
//! | find objects in photographs | [`detect_predict`] | [`DetectPredictOptions`] | [`DetectPredictResult`] |
//! | export a network | [`export`](fn@export) | [`ExportOptions`] | [`ExportResult`] |
//! | say whether a run folder is whole | [`check`](fn@check) | | [`CheckResult`] |
//! | write a page about runs | [`report`](fn@report) | [`ReportOptions`] | [`ReportResult`] |
//! | check, download and make data sets | [`data_check`], `data_fetch`, [`data_in100`], [`data_cub200`], [`data_shapes`] | | |
//!
//! Reports that a job keeps in a run folder are read back by [`read_linear`], [`read_fast_linear`], [`read_finetune`], [`read_heatmap`],
//! [`read_clusters`] and [`read_detection`].
//!
//! Errors name options by their fields, in backticks.

mod check;
mod cluster;
mod copies;
mod data;
mod detect;
mod duplicates;
mod embed;
mod eval;
mod export;
pub mod findings;
pub mod folders;
pub mod images;
mod log;
mod look;
mod lookup;
mod part;
mod photographs;
pub mod pictures;
mod purify;
mod report;
mod sheet;
pub mod source;
pub mod table;
mod train;

use std::path::{Path, PathBuf};

pub use crate::detect::ap::{ClassScore, DetectionScores};
pub use crate::detect::settings::DetectorSettings;
pub use crate::evaluate::clusters::{Agreement, AnyNumberScore, ClusterRow, ClusterScore, EpochFilter};
pub use crate::evaluate::finetune::{FinetuneResult, FinetuneSettings};
pub use crate::evaluate::heatmap::HeatInBoxes;
pub use crate::evaluate::linear::{LinearResult, LinearSettings};
pub use crate::train::{Ahead, Forecast, Spread};
pub use check::{CheckResult, check};
pub use cluster::{
    ChosenBy, ClusterBy, ClusterCount, ClusterOptions, ClusterResult, ClusterSummary, ClusteredRow, KMeansOptions,
    UNSORTED_MEANS, cluster,
};
pub use copies::{CopiesOptions, CopiesResult, CopyKind, CopyRow, copies};
pub use data::{
    DataCheckOptions, DataShapesOptions, DataShapesResult, DeriveOptions, data_check, data_cub200, data_in100,
    data_shapes,
};
#[cfg(feature = "fetch")]
pub use data::{DataFetchOptions, DataFetchResult, FetchOutcome, data_fetch};
pub use detect::{
    CocoDetection, DetectEvalOptions, DetectPredictOptions, DetectPredictResult, DetectTrainOptions, DetectionReport,
    detect_eval, detect_predict, detect_resume, detect_train, read_detection,
};
pub use duplicates::{DuplicateRow, DuplicatesOptions, DuplicatesResult, duplicates};
pub use embed::{EmbedOptions, EmbedResult, embed};
pub use eval::{
    ClustersReport, EvalClusterCount, EvalClustersOptions, EvalFinetuneOptions, EvalHeatmapOptions, EvalKnnOptions,
    EvalLinearOptions, EvalTsneOptions, FinetuneReport, HeatSheetOptions, HeatSheetResult, HeatmapReport, KnnReport,
    LinearReport, MeasuredImages, MeasuredWeights, TRUSTWORTHINESS_NEIGHBOURS, TsneReport, eval_clusters,
    eval_finetune, eval_heatmap, eval_knn, eval_linear, eval_tsne, heat_sheet, read_clusters, read_fast_linear,
    read_finetune, read_heatmap, read_linear,
};
pub use export::{ExportFormat, ExportOptions, ExportPart, ExportResult, export};
pub use look::{LookCount, LookKind, LookOptions, LookResult, LookRow, look};
pub use lookup::{
    AssignOptions, AssignResult, AssignedImage, NeighbourImage, NeighboursOptions, NeighboursResult, assign, neighbours,
};
pub use purify::{
    ClustersFrom, LabelError, LabelSummary, PurifiedRow, PurifyOptions, PurifyResult, PurifySummary, VotesFrom, purify,
};
pub use report::{ReportOptions, ReportResult, report};
pub use source::EmbeddingSource;
pub use train::{
    Caller, DEFAULT_MINUTES, ExtendOptions, ResumeOptions, RunRequest, TrainOptions, TrainResult, extend, forecast,
    resume, train, train_with,
};

/// The path as it holds from any folder.
fn absolute(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_path_buf())
}

/// A [`Status`](pcp_core::purify::Status) by its name in files.
mod status_name {
    use pcp_core::purify::Status;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub fn serialize<S: Serializer>(status: &Status, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(status.name())
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Status, D::Error> {
        let name = String::deserialize(from)?;
        let found = Status::ALL.into_iter().find(|status| status.name() == name);
        found.ok_or_else(|| de::Error::custom(format!("{name} is no status of a row")))
    }

    /// The same where there may be none.
    pub mod option {
        use super::{Deserialize, Deserializer, Serializer, Status};

        pub fn serialize<S: Serializer>(status: &Option<Status>, to: S) -> Result<S::Ok, S::Error> {
            match status {
                Some(status) => super::serialize(status, to),
                None => to.serialize_none(),
            }
        }

        #[derive(Deserialize)]
        struct StatusName(#[serde(with = "super")] Status);

        pub fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Option<Status>, D::Error> {
            Ok(Option::<StatusName>::deserialize(from)?.map(|name| name.0))
        }
    }
}
