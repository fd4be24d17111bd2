//! Weights of other tools, in torchvision's names: opened as a network, or used as initial weights of a run.

use super::open::CIFAR;
use super::{ModelCard, Named, Network, Weights, named_arrays};
use crate::config::{self, Arch, Head, Stem};
use crate::run::RunFolder;
use pcp_core::error::{Error, Result, listed};
use pcp_core::io::tensors::read_arrays;
use std::path::Path;

/// ImageNet's channel means and deviations, with which torchvision's weights were trained.
const IMAGENET: ([f64; 3], [f64; 3]) = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);
/// The network that `arrays` belong to, by their names and shapes. Images are normalised as is usual: with ImageNet's means for
/// large stems, CIFAR's for small ones.
pub(super) fn recognised(arrays: &[Named]) -> Result<ModelCard> {
    let shape = |name: &str| arrays.iter().find(|a| a.name == name).map(|a| a.shape.as_slice());
    let unknown = |why: String| {
        Error::file(
            format!("these weights belong to no supported network: {why}"),
            "ResNet18 and AlexNet with batch norm are supported, in torchvision's names",
        )
    };
    let (arch, width, stem, large, fc) = match (shape("conv1.weight"), shape("features.0.weight")) {
        (Some([width, 3, kernel @ (3 | 7), _]), _) => {
            if let Some(other) = ["layer1.2.conv1.weight", "layer1.0.conv3.weight"].iter().find(|n| shape(n).is_some())
            {
                return Err(unknown(format!("{other} belongs to a deeper ResNet than ResNet18")));
            }
            let large = *kernel == 7;
            (Arch::Resnet18, *width, if large { Stem::Large } else { Stem::Small }, large, "fc")
        }
        (_, Some([channels, 3, kernel @ (3 | 11), _])) => {
            if shape("features.1.running_mean").is_none() {
                return Err(unknown("this AlexNet has no batch norm".into()));
            }
            let (arch, own) = if *kernel == 11 { (Arch::Alexnet224, 96) } else { (Arch::Alexnet, 64) };
            (arch, channels * 64 / own, Stem::Auto, *kernel == 11, "classifier.6")
        }
        _ => return Err(unknown("there is neither conv1.weight nor features.0.weight of a usual shape".into())),
    };
    let (head, last) = match shape(&format!("{fc}.0.weight")) {
        Some(_) if shape(&format!("{fc}.3.weight")).is_some() => {
            let predicts = shape("predictor.0.weight").is_some();
            (if predicts { Head::Predictor } else { Head::Projector }, format!("{fc}.3.weight"))
        }
        Some(_) => (Head::Mlp, format!("{fc}.2.weight")),
        None => (Head::Linear, format!("{fc}.weight")),
    };
    let Some([embedding, _]) = shape(&last) else {
        return Err(unknown(format!("there is no {last} that makes an embedding")));
    };
    let network = config::NetworkSettings { arch, width, embedding: *embedding, stem, head };
    let (mean, std) = if large { IMAGENET } else { CIFAR };
    let (size, margin) = if large { (224, 256.0 / 224.0) } else { (32, 1.0) };
    let precision = config::Precision::F32;
    Ok(ModelCard { network, precision, size, margin, stored: None, mean, std, round: 0, epoch: 0, combination: None })
}

/// Initial weights of a network from a file.
#[derive(Clone, Debug)]
pub struct Adopted {
    /// The weights.
    pub weights: Weights,
    /// The arrays that the file lacks or has in another shape and that were drawn at random; only those of the head may be.
    pub fresh: Vec<String>,
}

impl Adopted {
    /// Which arrays came from the file, for messages.
    pub fn summary(&self) -> String {
        match self.fresh.is_empty() {
            true => "all of it".into(),
            false => format!("all but {}, which start at random", listed(&self.fresh)),
        }
    }
}

impl Network {
    /// Initial weights from a safetensors file or from the last weights of a run folder. The head, whose shape depends on the
    /// task, may have another shape or be missing: then it is drawn with `seed`.
    pub fn adopt(&self, path: &Path, seed: u64) -> Result<Adopted> {
        let file = if path.is_dir() { RunFolder::last_weights_in(path) } else { path.to_path_buf() };
        adopted(self, &named_arrays(read_arrays(&file)?, ""), seed).map_err(|e| e.at(&file))
    }
}

fn adopted(network: &Network, arrays: &[Named], seed: u64) -> Result<Adopted> {
    let mut own = network.named(&network.init(seed));
    let heads: Vec<String> = network.head_names();
    let mut fresh = Vec::new();
    for array in &mut own {
        let found = arrays.iter().find(|a| a.name == array.name);
        match found {
            Some(found) if found.shape == array.shape => array.values.clone_from(&found.values),
            _ if heads.contains(&array.name) => fresh.push(array.name.clone()),
            Some(found) => {
                return Err(Error::usage(
                    format!(
                        "{} has the shape {:?} in the file, but {:?} in this network",
                        array.name, found.shape, array.shape
                    ),
                    "give the --arch, --width and, for a ResNet, network.stem (large: 7x7) of the weights",
                ));
            }
            None => {
                return Err(Error::usage(
                    format!("{} is missing", array.name),
                    "give the --arch, --width and, for a ResNet, network.stem (large: 7x7) of the weights",
                ));
            }
        }
    }
    if !own.iter().all(|array| array.values.iter().all(|v| v.is_finite())) {
        return Err(Error::file("some of these weights are not finite", "use another file"));
    }
    Ok(Adopted { weights: network.from_named(&own)?, fresh })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn network(settings: &config::NetworkSettings, size: usize) -> Network {
        Network::new(settings, size).unwrap()
    }

    #[test]
    fn a_network_is_known_by_its_arrays() {
        for (arch, width, stem, head, size) in [
            (Arch::Resnet18, 64, Stem::Large, Head::Linear, 224),
            (Arch::Resnet18, 16, Stem::Small, Head::Mlp, 32),
            (Arch::Resnet18, 8, Stem::Small, Head::Projector, 32),
            (Arch::Resnet18, 8, Stem::Small, Head::Predictor, 32),
            (Arch::Alexnet, 64, Stem::Auto, Head::Linear, 32),
            (Arch::Alexnet, 8, Stem::Auto, Head::Mlp, 32),
            (Arch::Alexnet224, 2, Stem::Auto, Head::Linear, 224),
        ] {
            let settings = config::NetworkSettings { arch, width, stem, head, embedding: 20 };
            let net = network(&settings, size);
            let named = net.named(&net.init(0));
            let card = recognised(&named).unwrap();
            assert_eq!((card.network, card.size), (settings, size));
            // Its own weights are all used.
            let found = adopted(&net, &named, 9).unwrap();
            assert_eq!((net.named(&found.weights), found.summary().as_str()), (named, "all of it"));
        }
    }

    #[test]
    fn other_heads_are_drawn_and_other_bodies_are_refused() {
        let settings = config::NetworkSettings { width: 4, ..Config::default().network };
        let net = network(&settings, 32);
        let other = network(&config::NetworkSettings { embedding: 1000, ..settings.clone() }, 32);
        let theirs = other.named(&other.init(1));
        let found = adopted(&net, &theirs, 5).unwrap();
        assert_eq!(found.fresh, ["fc.weight", "fc.bias"]);
        assert!(found.summary().contains("fc.weight"));
        let (mine, begun) = (net.named(&found.weights), net.named(&net.init(5)));
        let of = |named: &[Named], name: &str| named.iter().find(|a| a.name == name).unwrap().values.clone();
        assert_eq!(of(&mine, "conv1.weight"), of(&theirs, "conv1.weight"));
        assert_eq!(of(&mine, "fc.weight"), of(&begun, "fc.weight"));
        // Without any head, too.
        let bare: Vec<Named> = theirs.iter().filter(|a| !a.name.starts_with("fc")).cloned().collect();
        assert_eq!(adopted(&net, &bare, 5).unwrap().fresh.len(), 2);
        let large = network(&config::NetworkSettings { stem: Stem::Large, ..settings.clone() }, 80);
        let refused = adopted(&net, &large.named(&large.init(0)), 0).unwrap_err();
        assert!(refused.message.contains("conv1.weight") && refused.hint.contains("network.stem"), "{refused:?}");
        let part: Vec<Named> = theirs.iter().filter(|a| a.name != "layer2.0.bn1.bias").cloned().collect();
        assert!(adopted(&net, &part, 0).unwrap_err().message.contains("layer2.0.bn1.bias is missing"));
        let mut broken = theirs.clone();
        broken[0].values[0] = f32::NAN;
        assert!(adopted(&net, &broken, 0).unwrap_err().message.contains("not finite"));
    }

    #[test]
    fn other_networks_are_refused() {
        let array = |name: &str, shape: &[usize]| Named { name: name.into(), shape: shape.into(), values: vec![] };
        let why = |arrays: &[Named]| recognised(arrays).unwrap_err().message;
        assert!(why(&[]).contains("neither"));
        let resnet50 = [array("conv1.weight", &[64, 3, 7, 7]), array("layer1.0.conv3.weight", &[256, 64, 1, 1])];
        assert!(why(&resnet50).contains("deeper"));
        assert!(why(&[array("features.0.weight", &[64, 3, 11, 11])]).contains("batch norm"));
        assert!(why(&[array("conv1.weight", &[64, 3, 7, 7])]).contains("fc.weight"));
    }
}
