//! Images that a job works on, read with an observer.

use super::part::on_pool;
use crate::config::Resolved;
use crate::data::folder::list;
use crate::data::{self, Dataset, Load, Pictures, Source};
use crate::observe::Observer;
use pcp_core::error::{Error, Kind, Result};
use pcp_core::peers::Team;
use std::path::Path;
use std::sync::Arc;

/// Reads the data set that `load` describes.
pub fn read(load: Load, observer: &Arc<dyn Observer>) -> Result<Dataset> {
    on_pool("reading", 0, observer, move |part| data::load(&load, &|done, total| part.at(done, total)))
}

/// Reads the images of a run that was begun, in the same way.
pub fn read_again(config: &Resolved, observer: &Arc<dyn Observer>) -> Result<Dataset> {
    read_again_among(&Team::default(), config, observer)
}

/// As [`read_again`], by several processes.
pub fn read_again_among(team: &Team, config: &Resolved, observer: &Arc<dyn Observer>) -> Result<Dataset> {
    let load = config.load_request().map(|load| Load { team: team.clone(), ..load });
    load.and_then(|load| read(load, observer)).map_err(|e| {
        let message = format!("the images of this run cannot be read: {}", e.message);
        match e.kind {
            Kind::Usage => Error::data(message, format!("they were in {}: bring them back", config.data.source)),
            Kind::Data => Error { message, ..e },
            _ => e,
        }
    })
}

/// The images that `text` names: a folder of images, one image, cifar10, cifar100 or bundled. Files are listed, and opened when
/// it is their turn.
pub(crate) fn listed(text: &str, data_dir: Option<&Path>, observer: &Arc<dyn Observer>) -> Result<Pictures> {
    let source = Source::parse(text)?;
    source.check_dir(data_dir.is_some())?;
    if let Source::Folder(path) = source {
        return on_pool("listing", 0, observer, move |_| Ok(Pictures::Files(Arc::new(list(&path)?))));
    }
    let load = Load { data_dir: data_dir.map(Path::to_path_buf), ..Load::new(source) };
    Ok(Pictures::Loaded(Arc::new(read(load, observer)?)))
}
