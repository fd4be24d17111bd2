//! Weights from elsewhere, in torchvision's names: as the beginning of a run, or as a model of their own.

use super::setup::ModelCard;
use crate::config::{self, Arch, Head, Stem};
use crate::model::{Named, Network, Weights};
use pcp_core::error::{Error, Result, listed};
use pcp_core::io::tensors::Array;
use std::collections::BTreeMap;

/// ImageNet's channel means and deviations, which torchvision's weights are made for.
const IMAGENET: ([f64; 3], [f64; 3]) = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);
/// CIFAR's.
const CIFAR: ([f64; 3], [f64; 3]) = ([0.4914, 0.4822, 0.4465], [0.2023, 0.1994, 0.2010]);

/// The floats among `arrays` whose names begin with `prefix`, without it.
pub fn named(arrays: BTreeMap<String, Array>, prefix: &str) -> Vec<Named> {
    let named = |(name, array): (String, Array)| match array {
        Array::F32(shape, values) => Some(Named { name: name.strip_prefix(prefix)?.to_string(), shape, values }),
        Array::U32(..) => None,
    };
    arrays.into_iter().filter_map(named).collect()
}

/// What network `arrays` are of, by their names and shapes, and how images are made ready for it by custom: ImageNet's way for
/// the large stems, CIFAR's for the small.
pub fn recognised(arrays: &[Named]) -> Result<ModelCard> {
    let shape = |name: &str| arrays.iter().find(|a| a.name == name).map(|a| a.shape.as_slice());
    let unknown = |why: String| {
        Error::file(
            format!("these weights are of no network that is known here: {why}"),
            "ResNet18 and AlexNet with batch norm are known, in torchvision's names",
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
        Some(_) => (Head::Mlp, format!("{fc}.2.weight")),
        None => (Head::Linear, format!("{fc}.weight")),
    };
    let Some([embedding, _]) = shape(&last) else {
        return Err(unknown(format!("there is no {last} that makes an embedding")));
    };
    let network = config::Network { arch, width, embedding: *embedding, stem, head };
    let (mean, std) = if large { IMAGENET } else { CIFAR };
    let (size, margin) = if large { (224, 256.0 / 224.0) } else { (32, 1.0) };
    Ok(ModelCard { network, size, margin, stored: None, mean, std, round: 0, epoch: 0 })
}

/// The weights with which a run of `network` begins: `arrays`, where they fit. The layers that make the embedding may be of
/// another shape, or missing: they begin as `seed` has it, and are named.
pub fn beginning(network: &Network, arrays: &[Named], seed: u64) -> Result<(Weights, Vec<String>)> {
    let mut own = network.named(&network.init(seed));
    let heads: Vec<String> = network.head_names();
    let mut left = Vec::new();
    for array in &mut own {
        let found = arrays.iter().find(|a| a.name == array.name);
        match found {
            Some(found) if found.shape == array.shape => array.values.clone_from(&found.values),
            _ if heads.contains(&array.name) => left.push(array.name.clone()),
            Some(found) => {
                return Err(Error::usage(
                    format!("{} has the shape {:?} there, and {:?} here", array.name, found.shape, array.shape),
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
        return Err(Error::file("some of these weights are not numbers", "use another file"));
    }
    Ok((network.from_named(&own)?, left))
}

/// What was left as it was, in words.
pub fn told(left: &[String]) -> String {
    if left.is_empty() { "all of it".into() } else { format!("all but {}, which begin anew", listed(left)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn network(settings: &config::Network, size: usize) -> Network {
        Network::new(settings, size).unwrap()
    }

    #[test]
    fn a_network_is_known_by_its_arrays() {
        for (arch, width, stem, head, size) in [
            (Arch::Resnet18, 64, Stem::Large, Head::Linear, 224),
            (Arch::Resnet18, 16, Stem::Small, Head::Mlp, 32),
            (Arch::Alexnet, 64, Stem::Auto, Head::Linear, 32),
            (Arch::Alexnet, 8, Stem::Auto, Head::Mlp, 32),
            (Arch::Alexnet224, 2, Stem::Auto, Head::Linear, 224),
        ] {
            let settings = config::Network { arch, width, stem, head, embedding: 20 };
            let net = network(&settings, size);
            let named = net.named(&net.init(0));
            let card = recognised(&named).unwrap();
            assert_eq!((card.network, card.size), (settings, size));
            // Its own weights are taken whole.
            let (weights, left) = beginning(&net, &named, 9).unwrap();
            assert_eq!((net.named(&weights), left), (named, vec![]));
        }
    }

    #[test]
    fn other_heads_begin_anew_and_other_bodies_are_refused() {
        let settings = config::Network { width: 4, ..Config::default().network };
        let net = network(&settings, 32);
        let other = network(&config::Network { embedding: 1000, ..settings.clone() }, 32);
        let theirs = other.named(&other.init(1));
        let (weights, left) = beginning(&net, &theirs, 5).unwrap();
        assert_eq!(left, ["fc.weight", "fc.bias"]);
        assert!(told(&left).contains("fc.weight"));
        let (mine, begun) = (net.named(&weights), net.named(&net.init(5)));
        let of = |named: &[Named], name: &str| named.iter().find(|a| a.name == name).unwrap().values.clone();
        assert_eq!(of(&mine, "conv1.weight"), of(&theirs, "conv1.weight"));
        assert_eq!(of(&mine, "fc.weight"), of(&begun, "fc.weight"));
        // Without any head, too.
        let bare: Vec<Named> = theirs.iter().filter(|a| !a.name.starts_with("fc")).cloned().collect();
        assert_eq!(beginning(&net, &bare, 5).unwrap().1.len(), 2);
        let large = network(&config::Network { stem: Stem::Large, ..settings.clone() }, 80);
        let refused = beginning(&net, &large.named(&large.init(0)), 0).unwrap_err();
        assert!(refused.message.contains("conv1.weight") && refused.hint.contains("network.stem"), "{refused:?}");
        let part: Vec<Named> = theirs.iter().filter(|a| a.name != "layer2.0.bn1.bias").cloned().collect();
        assert!(beginning(&net, &part, 0).unwrap_err().message.contains("layer2.0.bn1.bias is missing"));
        let mut broken = theirs.clone();
        broken[0].values[0] = f32::NAN;
        assert!(beginning(&net, &broken, 0).unwrap_err().message.contains("not numbers"));
    }

    #[test]
    fn strangers_are_told_apart() {
        let array = |name: &str, shape: &[usize]| Named { name: name.into(), shape: shape.into(), values: vec![] };
        let why = |arrays: &[Named]| recognised(arrays).unwrap_err().message;
        assert!(why(&[]).contains("neither"));
        let resnet50 = [array("conv1.weight", &[64, 3, 7, 7]), array("layer1.0.conv3.weight", &[256, 64, 1, 1])];
        assert!(why(&resnet50).contains("deeper"));
        assert!(why(&[array("features.0.weight", &[64, 3, 11, 11])]).contains("batch norm"));
        assert!(why(&[array("conv1.weight", &[64, 3, 7, 7])]).contains("fc.weight"));
    }
}
