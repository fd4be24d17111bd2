//! The scales at which the tables are run, and everything that sets them apart.

use pcp_core::error::{Error, Result};
use std::path::{Path, PathBuf};

/// A data set on which the paper trains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// CIFAR-10.
    Cifar10,
    /// CIFAR-100.
    Cifar100,
    /// ImageNet-100, class folders in `in100`.
    In100,
    /// CUB-200-2011, class folders in `cub200`.
    Cub200,
    /// What networks of detectors are trained on: CIFAR-100 in the paper.
    ForDetectors,
}

impl Data {
    /// Its name for `pcp train`: that of a data set, or of a folder and its preset.
    pub fn word(self) -> &'static str {
        match self {
            Data::Cifar10 => "cifar10",
            Data::Cifar100 | Data::ForDetectors => "cifar100",
            Data::In100 => "in100",
            Data::Cub200 => "cub200",
        }
    }

    /// Images that the paper trains on.
    pub fn images(self) -> usize {
        match self {
            Data::Cifar10 | Data::Cifar100 | Data::ForDetectors => 50_000,
            Data::In100 => 126_689,
            Data::Cub200 => 5_994,
        }
    }

    /// Whether it is a folder of class folders rather than a release that the program knows.
    fn is_folder(self) -> bool {
        matches!(self, Data::In100 | Data::Cub200)
    }
}

/// The two networks of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Net {
    /// ResNet18.
    Resnet,
    /// AlexNet: the paper's for 224 px at full scale, the small one below it.
    Alexnet,
}

/// How large the runs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// The paper's setting.
    Full,
    /// The paper's recipe with only the width changed: all images, 16 channels.
    Thin,
    /// For two CPU cores: fewer images and channels, the paper's epochs. The bank is renewed once an epoch, so that a short
    /// schedule would starve every system that has one, while a small data set does not.
    Mini,
    /// The bundled photographs, a second a run: everything happens, no figure means anything.
    Tiny,
}

/// Numbers of clusters below this are near the number of classes, which is their point: they stay at every scale.
const SCALED_FROM: usize = 100;

impl Scale {
    /// All of them.
    pub const ALL: [Scale; 4] = [Scale::Full, Scale::Thin, Scale::Mini, Scale::Tiny];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Scale::Full => "full",
            Scale::Thin => "thin",
            Scale::Mini => "mini",
            Scale::Tiny => "tiny",
        }
    }

    /// The scale of that name.
    pub fn named(name: &str) -> Option<Scale> {
        Scale::ALL.into_iter().find(|s| s.name() == name)
    }

    /// Its settings in a line.
    pub fn summary(self) -> &'static str {
        match self {
            Scale::Full => "the paper's: all images, width 64, 200 epochs a round",
            Scale::Thin => "the paper's but for the width: all images, width 16, 200 epochs a round",
            Scale::Mini => {
                "the first 5,120 images (40 whole batches), width 16, 200 epochs a round; AlexNet in its 32-px form; CUB and IN-100 at 64 px; \
                 N_c of 100 or more such that K_t arrives at the paper's epoch"
            }
            Scale::Tiny => {
                "400 bundled photographs at 16 px for every data set, width 4, 12 epochs a round, 2 rounds at the most, \
                 batch 64; it shows that everything runs, the figures mean nothing"
            }
        }
    }

    /// Images that it trains on, at the most.
    pub fn images(self, data: Data) -> usize {
        match self {
            Scale::Full | Scale::Thin => data.images(),
            Scale::Mini if data == Data::ForDetectors => 10_000,
            Scale::Mini => data.images().min(5120),
            Scale::Tiny => data.images().min(400),
        }
    }

    /// The number of clusters that stands for the paper's `clusters`. By Eq. 1, K_t reaches N_c after `1 - log N_c / log N` of the
    /// epochs: of N' images, `N'^(log N_c / log N)` clusters are reached in the same epoch.
    pub fn clusters(self, clusters: usize, data: Data) -> usize {
        if clusters < SCALED_FROM {
            return clusters;
        }
        let share = (clusters as f64).ln() / (data.images() as f64).ln();
        (self.images(data) as f64).powf(share).round() as usize
    }

    /// The number of keys in a queue that stands for the paper's `keys`: in proportion to the images.
    pub fn keys(self, keys: usize, data: Data) -> usize {
        let share = self.images(data) as f64 / data.images() as f64;
        ((keys as f64 * share).round() as usize).max(2)
    }

    /// The number of rounds that stands for the paper's `rounds`.
    pub fn rounds(self, rounds: u32) -> u32 {
        if self == Scale::Tiny { rounds.min(2) } else { rounds }
    }

    /// Epochs of a linear probe: the paper's, where figures mean something.
    pub fn linear_epochs(self) -> u32 {
        if self == Scale::Tiny { 3 } else { 90 }
    }

    /// What the run trains on, for names.
    pub(super) fn data_name(self, data: Data) -> &'static str {
        match (self, data) {
            (Scale::Tiny, _) => "bundled",
            (Scale::Mini, Data::ForDetectors) => "cifar10",
            _ => data.word(),
        }
    }

    /// What the names of runs begin with.
    pub(super) fn run_prefix(self, data: Data) -> String {
        let broader = self == Scale::Mini && data == Data::ForDetectors;
        format!("{}{}", self.data_name(data), if broader { "-w32" } else { "" })
    }

    /// The arguments of `pcp detect train` that make a detector as large as the scale has it.
    pub fn detector_arguments(self) -> &'static [&'static str] {
        match self {
            Scale::Full | Scale::Thin => &[],
            Scale::Mini => &[
                "--short-side",
                "224",
                "--rois",
                "32",
                "--proposals",
                "300",
                "--test-proposals",
                "100",
                "--lr",
                "0.01",
            ],
            Scale::Tiny => &[
                "--classes",
                "disc,square,triangle",
                "--short-side",
                "48",
                "--rois",
                "8",
                "--proposals",
                "40",
                "--test-proposals",
                "20",
                "--epochs",
                "2",
                "--batch",
                "4",
            ],
        }
    }

    /// What must be known of the scale's detectors.
    pub fn detectors(self) -> &'static str {
        match self {
            Scale::Full => {
                "the paper's: all images, width 64, 200 epochs; detectors with a short side of 600, 128 boxes an image, 30 epochs"
            }
            Scale::Thin => {
                "all images, width 16, 200 epochs; detectors with a short side of 600, 128 boxes an image, 30 epochs, as in the paper"
            }
            Scale::Mini => {
                "networks are trained for 200 epochs on the first 10,000 images of CIFAR-10 (not CIFAR-100) at width 32; detectors have a short side \
                 of 224, 32 boxes and 300 proposals an image (100 at the test), 30 epochs, and lr 0.01, since fewer images make \
                 fewer steps"
            }
            Scale::Tiny => {
                "400 bundled photographs at 16 px, width 4, 12 epochs; detectors learn made-up shapes for 2 epochs: the figures mean nothing"
            }
        }
    }

    /// Where the detection set is: VOC's devkit in `dir`. The tiny scale makes its own.
    pub fn voc(self, dir: Option<&str>) -> Result<PathBuf> {
        let inside = "VOCdevkit/VOC2007";
        let Some(dir) = dir else {
            return Err(Error::usage(
                "detectors need to know where PASCAL VOC 2007 is",
                format!("give --data-dir DIR, where DIR holds {inside}"),
            ));
        };
        let folder = Path::new(dir).join(inside);
        if folder.is_dir() {
            return Ok(folder);
        }
        let message = format!("there is no folder {}", folder.display());
        Err(Error::data(message, "unpack the devkit of PASCAL VOC 2007 (trainval and test) there"))
    }

    /// What a run trains on, the folder of its data set, and the preset that is named for it, where the data sets are in `dir`.
    pub(super) fn data_of_run(self, data: Data, dir: Option<&str>) -> (String, Option<String>, Option<&'static str>) {
        let name = self.data_name(data);
        if self == Scale::Tiny {
            return (name.into(), None, None);
        }
        if data.is_folder() {
            let folder = Path::new(dir.unwrap_or_default()).join(name);
            return (folder.display().to_string(), None, Some(name));
        }
        (name.into(), dir.map(String::from), None)
    }

    /// The settings that make a run as large as the scale has it.
    pub(super) fn own_settings(self, data: Data, network: Net) -> Vec<&'static str> {
        let mut settings: Vec<&str> = match (network, self) {
            (Net::Resnet, _) => vec![],
            (Net::Alexnet, Scale::Full | Scale::Thin) => vec!["network.arch=alexnet224"],
            (Net::Alexnet, _) => vec!["network.arch=alexnet"],
        };
        settings.extend(match self {
            Scale::Full => &[][..],
            Scale::Thin => &["network.width=16"],
            Scale::Mini if data == Data::ForDetectors => &["data.limit=10000", "network.width=32"],
            Scale::Mini => &["data.limit=5120", "network.width=16"],
            Scale::Tiny => &["data.limit=400", "data.size=16", "network.width=4", "train.epochs=12", "train.batch=64"],
        });
        if self == Scale::Mini && data.is_folder() {
            // Photographs are kept no larger than 64-px views need; the presets' 256 px would fill the memory.
            settings.extend(["data.size=64", "data.stored=73"]);
        }
        settings
    }

    /// Fails when class folders that the scale needs are not in `dir`. (What is missing of CIFAR, its reader says.)
    pub fn check_data(self, data: Data, dir: Option<&str>) -> Result<()> {
        if self == Scale::Tiny || !data.is_folder() {
            return Ok(());
        }
        let word = data.word();
        let Some(dir) = dir else {
            return Err(Error::usage(
                format!("{word} needs to know where its class folders are"),
                format!("give --data-dir DIR, where DIR holds the folder {word} (pcp data {word} makes it)"),
            ));
        };
        let folder = Path::new(dir).join(word);
        if folder.is_dir() {
            return Ok(());
        }
        Err(Error::data(
            format!("there is no folder {}", folder.display()),
            format!("put the class folders of {word} there (pcp data {word} makes them)"),
        ))
    }
}
