//! Shapes, counts and gradients of the networks.

use super::*;
use crate::config::Config;
use crate::model::Optimizer;
use crate::model::graph::{Graph, GraphNode, Op};
use pcp_core::rng::Purpose;

fn network(arch: Arch, width: usize, size: usize) -> Network {
    let config = config::NetworkSettings { arch, width, ..Config::default().network };
    Network::new(&config, size).unwrap()
}

fn batch(rows: usize, size: usize, seed: u64) -> Batch {
    let mut s = Key { purpose: Purpose::Synthetic, seed, round: 0, epoch: 0 }.stream(0, 0);
    Batch { rows, pixels: (0..rows * size * size * 3).map(|_| s.normal()).collect() }
}

fn dropout(ids: &[u64]) -> DropoutKey {
    DropoutKey { key: Key { purpose: Purpose::Dropout, seed: 1, round: 0, epoch: 0 }, ids: ids.to_vec() }
}

#[test]
fn parameter_counts_are_the_papers() {
    assert_eq!(network(Arch::Resnet18, 64, 32).parameter_count(), 11_234_496);
    let alexnet = network(Arch::Alexnet224, 64, 224).parameter_count();
    assert!((58_700_000..58_900_000).contains(&alexnet), "{alexnet}");
}

#[test]
fn names_are_torchvisions() {
    let net = network(Arch::Resnet18, 8, 32);
    let named = net.named(&net.init(0));
    let shape = |name: &str| named.iter().find(|n| n.name == name).map(|n| n.shape.clone());
    assert_eq!(shape("conv1.weight"), Some(vec![8, 3, 3, 3]));
    assert_eq!(shape("layer4.0.downsample.0.weight"), Some(vec![64, 32, 1, 1]));
    assert_eq!(shape("layer1.1.bn2.running_var"), Some(vec![8]));
    assert_eq!(shape("fc.weight"), Some(vec![128, 64]));
    assert_eq!(named.len(), 20 * 3 + 2 + 20 * 2);
    let net = network(Arch::Alexnet, 64, 32);
    let named = net.named(&net.init(0));
    assert!(named.iter().any(|n| n.name == "classifier.0.weight" && n.shape == [1024, 4096]));
}

#[test]
fn every_network_gives_unit_vectors_and_finite_gradients() {
    for (arch, width, size) in [
        (Arch::Resnet18, 4, 32),
        (Arch::Resnet18, 4, 17),
        (Arch::Resnet18, 4, 80),
        (Arch::Alexnet, 8, 32),
        (Arch::Alexnet224, 4, 80),
    ] {
        let net = network(arch, width, size);
        let mut weights = net.init(3);
        let of = |tap| net.features(&weights, &batch(2, size, 1), tap);
        let (unit, raw, pooled) = (of(FeatureKind::Embedding), of(FeatureKind::RawEmbedding), of(FeatureKind::Pooled));
        assert_eq!((unit.rows, unit.dim, raw.dim, pooled.dim), (2, 128, 128, net.pooled));
        let scaled = raw.normalised();
        assert!(unit.values.iter().zip(&scaled.values).all(|(u, r)| (u - r).abs() < 1e-6));
        let length: f32 = unit.row(1).iter().map(|x| x * x).sum();
        assert!((length - 1.0).abs() < 1e-5, "{arch:?}: {length}");
        let step = net.step(&weights, batch(4, size, 2), 2, dropout(&[0, 1]), FeatureKind::Embedding, |v| {
            ((), vec![1.0; v.values.len()])
        });
        assert_eq!(step.gradients.len(), weights.parameters.len());
        assert!(step.gradients.iter().all(|g| weights::to_vec(g.to_data()).iter().all(|x| x.is_finite())));
        weights.update_running_stats(&step.moments);
        let sgd = kernels::Sgd { lr: 0.01, momentum: 0.9, decay: 5e-4, nesterov: false };
        Optimizer::new(&weights).step(&mut weights, step.gradients, sgd);
        assert!(weights.is_finite());
    }
}

/// Length of `a - b` over that of `b`.
fn distance(a: &[f32], b: &[f32]) -> f64 {
    let square = |values: &mut dyn Iterator<Item = f32>| values.map(|x| f64::from(x) * f64::from(x)).sum::<f64>();
    assert_eq!(a.len(), b.len());
    (square(&mut a.iter().zip(b).map(|(a, b)| a - b)) / square(&mut b.iter().copied())).sqrt()
}

/// Weights that are off by about 1 %, as much as a layer in bf16 is off.
fn shaken(net: &Network, weights: &Weights) -> Weights {
    let mut s = Key { purpose: Purpose::Synthetic, seed: 7, round: 0, epoch: 0 }.stream(0, 0);
    let mut named = net.named(weights);
    let kernels = named.iter_mut().filter(|n| n.shape.len() > 1);
    kernels.for_each(|n| n.values.iter_mut().for_each(|w| *w *= 1.0 + 0.01 * s.normal()));
    net.from_named(&named).unwrap()
}

/// How far features and gradients of a network in bf16 are from those in f32 depends on how they magnify an error: they are compared with
/// those of weights that are off by as much as a layer in bf16 is.
#[test]
fn networks_in_bf16_are_as_close_to_those_in_f32_as_their_layers() {
    for (arch, width, size) in [(Arch::Resnet18, 8, 32), (Arch::Alexnet, 8, 32), (Arch::Alexnet224, 4, 80)] {
        let f32 = network(arch, width, size);
        let bf16 = f32.clone().with_precision(Precision::Bf16);
        let weights = f32.init(3);
        let shaken = shaken(&f32, &weights);
        let of = |net: &Network, weights: &Weights| {
            let mut all: Vec<(String, Vec<f32>)> = Vec::new();
            for (name, kind) in net.feature_kinds() {
                all.push((name, net.features(weights, &batch(4, size, 1), kind).values));
            }
            let ids: Vec<u64> = (0..16).collect();
            let step = net.step(weights, batch(32, size, 2), 2, dropout(&ids), FeatureKind::Embedding, |v| {
                ((), (0..v.values.len()).map(|i| (i as f32 * 0.37).sin()).collect())
            });
            all.push(("features".into(), step.features.values));
            all.push(("variances".into(), step.moments.iter().flat_map(|m| m.variance.clone()).collect()));
            let gradients = net.parameters.iter().zip(&step.gradients);
            all.extend(gradients.map(|(spec, g)| (spec.name.clone(), weights::to_vec(g.to_data()))));
            all
        };
        let (exact, found, moved) = (of(&f32, &weights), of(&bf16, &weights), of(&f32, &shaken));
        for (((name, exact), (_, found)), (_, moved)) in exact.iter().zip(&found).zip(&moved) {
            // The gradient of a bias before batch norm is zero but for rounding.
            if exact.iter().any(|x| x.abs() > 1e-3) {
                let (off, allowed) = (distance(found, exact), 3.0 * distance(moved, exact));
                assert!(off > 0.0 && off < allowed, "{arch:?}, {name}: {off}, {allowed}");
            }
        }
    }
}

#[test]
fn bf16_gives_the_same_bits_on_any_number_of_threads() {
    for (arch, width, size) in [(Arch::Resnet18, 8, 32), (Arch::Alexnet, 8, 32)] {
        let net = network(arch, width, size).with_precision(Precision::Bf16);
        let weights = net.init(3);
        let on = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let ids: Vec<u64> = (0..20).collect();
                let step = net.step(&weights, batch(40, size, 2), 2, dropout(&ids), FeatureKind::Embedding, |v| {
                    ((), v.values.iter().map(|v| v.sin()).collect())
                });
                let gradients: Vec<Vec<f32>> = step.gradients.iter().map(|g| weights::to_vec(g.to_data())).collect();
                (step.features, gradients, net.features(&weights, &batch(40, size, 2), FeatureKind::Embedding))
            })
        };
        let one = on(1);
        for threads in [2, 3] {
            assert!(on(threads) == one, "{arch:?} on {threads} threads");
        }
    }
}

#[test]
fn images_too_small_for_alexnet_are_refused() {
    let config = config::NetworkSettings { arch: Arch::Alexnet224, ..Config::default().network };
    assert!(Network::new(&config, 32).unwrap_err().hint.contains("--size 224"));
    assert!(Network::new(&config, 63).is_ok());
    assert!(Network::new(&config, 62).is_err());
}

#[test]
fn gradients_match_finite_differences() {
    let net = network(Arch::Resnet18, 4, 16);
    let kind = FeatureKind::Embedding;
    check_gradients(&net, kind, &["fc.weight", "layer2.0.conv2.weight", "layer3.1.bn1.weight", "conv1.weight"]);
    let with = |head: Head| {
        let settings = config::NetworkSettings { width: 4, head, ..Config::default().network };
        Network::new(&settings, 16).unwrap()
    };
    check_gradients(&with(Head::Projector), kind, &["fc.3.weight", "fc.1.weight", "fc.0.weight", "conv1.weight"]);
    let names = ["predictor.3.weight", "predictor.1.weight", "predictor.0.weight", "fc.3.weight"];
    check_gradients(&with(Head::Predictor), FeatureKind::Prediction, &names);
}

/// Compares gradients of these parameters with differences of the loss.
fn check_gradients(net: &Network, kind: FeatureKind, names: &[&str]) {
    let mut weights = net.init(5);
    // A fixed direction: the loss is its product with the embeddings.
    let direction: Vec<f32> = batch(1, 16, 9).pixels[..512].to_vec();
    let loss = |weights: &Weights| {
        let direction = direction.clone();
        let step = net.step(weights, batch(4, 16, 4), 2, dropout(&[0, 1]), kind, |v| {
            let value: f64 = v.values.iter().zip(&direction).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            (value, direction)
        });
        (step.loss, step.gradients)
    };
    let (_, gradients) = loss(&weights);
    // The head, a middle convolution, a batch-norm scale and the stem.
    for &name in names {
        let p = net.parameters.iter().position(|s| s.name == name).unwrap();
        let gradient = weights::to_vec(gradients[p].to_data());
        let at = (0..gradient.len()).max_by(|a, b| gradient[*a].abs().total_cmp(&gradient[*b].abs())).unwrap();
        let original = weights::to_vec(weights.parameters[p].to_data());
        let mut moved = |by: f32| {
            let mut values = original.clone();
            values[at] += by;
            weights.parameters[p] = weights::flat(values);
            loss(&weights).0
        };
        // Shorter steps for steeper gradients, because ReLU is only piecewise linear.
        let h = 2e-3 / gradient[at].abs().max(1.0);
        let expected = (moved(h) - moved(-h)) / (2.0 * f64::from(h));
        moved(0.0);
        let found = f64::from(gradient[at]);
        assert!((found - expected).abs() < 0.05 * found.abs().max(0.1), "{name}: {found} is not {expected}");
    }
}

#[test]
fn running_statistics_are_updated_by_each_view_in_turn() {
    let net = network(Arch::Resnet18, 4, 16);
    let mut weights = net.init(5);
    let two = batch(6, 16, 4);
    let half = two.pixels.len() / 2;
    let (one, other) = (two.pixels[..half].to_vec(), two.pixels[half..].to_vec());
    let together =
        net.step(&weights, two, 2, dropout(&[0, 1, 2]), FeatureKind::Embedding, |v| ((), vec![0.0; v.values.len()]));
    let mut expected = weights.clone();
    for pixels in [one, other] {
        let step = net.step(&weights, Batch { rows: 3, pixels }, 1, dropout(&[0, 1, 2]), FeatureKind::Embedding, |v| {
            ((), vec![0.0; v.values.len()])
        });
        expected.update_running_stats(&step.moments);
    }
    weights.update_running_stats(&together.moments);
    for (a, b) in weights.buffers.iter().zip(&expected.buffers) {
        for (x, y) in a.iter().zip(b) {
            assert!((x - y).abs() < 1e-4 * y.abs().max(1.0), "{x} is not {y}");
        }
    }
}

#[test]
fn dropout_masks_depend_on_the_image_not_on_its_row() {
    let net = network(Arch::Alexnet224, 4, 80);
    let weights = net.init(2);
    let embed = |ids: &[u64], pixels: Vec<f32>| {
        let rows = ids.len();
        net.step(&weights, Batch { rows, pixels }, 1, dropout(ids), FeatureKind::Embedding, |v| {
            ((), vec![0.0; v.values.len()])
        })
        .features
    };
    let b = batch(1, 80, 3).pixels;
    // The same picture three times: only the masks make the rows differ.
    let three = |ids: &[u64]| embed(ids, [b.clone(), b.clone(), b.clone()].concat());
    let (a, c) = (three(&[4, 5, 6]), three(&[6, 4, 5]));
    assert_eq!(a.row(0), c.row(1));
    assert_eq!(a.row(2), c.row(0));
    assert_ne!(a.row(0), a.row(1));
}

#[test]
fn weights_survive_their_names_and_others_are_refused() {
    let net = network(Arch::Resnet18, 4, 32);
    let weights = net.init(1);
    let named = net.named(&weights);
    assert_eq!(net.named(&net.from_named(&named).unwrap()), named);
    assert!(net.from_named(&named[1..]).unwrap_err().message.contains("conv1.weight is missing"));
    let wider = network(Arch::Resnet18, 8, 32);
    assert!(wider.from_named(&named).unwrap_err().message.contains("shape"));
}

/// Evaluates a graph with plain loops, one image at a time: maps are `(channels, side, values)` in the order channel, row, column.
fn evaluate(graph: &Graph, named: &[Named], side: usize, pixels: &[f32]) -> Vec<(usize, usize, Vec<f64>)> {
    let array = |name: &str| named.iter().find(|n| n.name == name).unwrap();
    let image = (0..3 * side * side).map(|i| f64::from(pixels[(i % (side * side)) * 3 + i / (side * side)])).collect();
    let mut values: Vec<(usize, usize, Vec<f64>)> = vec![(3, side, image)];
    for GraphNode { op, inputs } in &graph.nodes {
        let (c, s, x) = &values[inputs[0]];
        let at = |c: usize, y: isize, i: isize, none: f64| {
            let inside = (0..*s as isize).contains(&y) && (0..*s as isize).contains(&i);
            if inside { x[(c * s + y as usize) * s + i as usize] } else { none }
        };
        // Every place of the output, and the place in the input where its square begins.
        let squares = |kernel: usize, stride: usize, padding: usize, of: &dyn Fn(isize, isize) -> f64| {
            let out = (s + 2 * padding - kernel) / stride + 1;
            let from = |v: usize| (v * stride) as isize - padding as isize;
            (out, (0..out * out).map(|p| of(from(p / out), from(p % out))).collect::<Vec<f64>>())
        };
        values.push(match op {
            Op::Conv { weight, bias, stride, padding } => {
                let (w, bias) = (array(weight), bias.as_ref().map(|b| &array(b).values));
                let kernel = w.shape[2];
                let mut all = (0, Vec::new());
                for k in 0..w.shape[0] {
                    let (out, map) = squares(kernel, *stride, *padding, &|y, i| {
                        let products = (0..c * kernel * kernel).map(|p| {
                            let (c, dy, di) = (p / (kernel * kernel), p / kernel % kernel, p % kernel);
                            at(c, y + dy as isize, i + di as isize, 0.0) * f64::from(w.values[k * c_len(w) + p])
                        });
                        products.sum::<f64>() + bias.map_or(0.0, |b| f64::from(b[k]))
                    });
                    all.0 = out;
                    all.1.extend(map);
                }
                (w.shape[0], all.0, all.1)
            }
            Op::Norm { name } => {
                let of = |part: &str| &array(&format!("{name}.{part}")).values;
                let parts = [of("weight"), of("bias"), of("running_mean"), of("running_var")];
                let normal = |(i, x): (usize, &f64)| {
                    let [g, b, m, v] = parts.map(|p| f64::from(p[i / (s * s)]));
                    (x - m) / (v + 1e-5).sqrt() * g + b
                };
                (*c, *s, x.iter().enumerate().map(normal).collect())
            }
            Op::Relu => (*c, *s, x.iter().map(|x| x.max(0.0)).collect()),
            Op::Add => (*c, *s, x.iter().zip(&values[inputs[1]].2).map(|(a, b)| a + b).collect()),
            Op::MaxPool { size, stride, padding } => {
                let mut all = (0, Vec::new());
                for c in 0..*c {
                    let (out, map) = squares(*size, *stride, *padding, &|y, i| {
                        let square = (0..size * size)
                            .map(|p| at(c, y + (p / size) as isize, i + (p % size) as isize, f64::NEG_INFINITY));
                        square.fold(f64::NEG_INFINITY, f64::max)
                    });
                    all.0 = out;
                    all.1.extend(map);
                }
                (*c, all.0, all.1)
            }
            Op::MeanPool => (*c, 1, x.chunks(s * s).map(|m| m.iter().sum::<f64>() / (s * s) as f64).collect()),
            Op::Flatten => (x.len(), 1, x.clone()),
            Op::Linear { weight, bias } => {
                let (w, bias) = (array(weight), bias.as_ref().map(|b| &array(b).values));
                let row = |(k, row): (usize, &[f32])| {
                    let sum: f64 = row.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum();
                    sum + bias.map_or(0.0, |b| f64::from(b[k]))
                };
                (w.shape[0], 1, w.values.chunks(w.shape[1]).enumerate().map(row).collect())
            }
            Op::Unit => {
                let length = x.iter().map(|x| x * x).sum::<f64>().sqrt().max(1e-12);
                (*c, 1, x.iter().map(|x| x / length).collect())
            }
        });
    }
    values
}

/// Numbers of one filter.
fn c_len(weight: &Named) -> usize {
    weight.shape[1..].iter().product()
}

#[test]
fn the_graph_computes_what_the_network_does() {
    for (arch, width, size, head) in [
        (Arch::Resnet18, 4, 17, Head::Linear),
        (Arch::Resnet18, 2, 70, Head::Mlp),
        (Arch::Resnet18, 4, 17, Head::Projector),
        (Arch::Resnet18, 4, 17, Head::Predictor),
        (Arch::Alexnet, 4, 16, Head::Linear),
        (Arch::Alexnet224, 2, 63, Head::Linear),
    ] {
        let config = config::NetworkSettings { arch, width, head, embedding: 8, ..Config::default().network };
        let net = Network::new(&config, size).unwrap();
        let mut named = net.named(&net.init(5));
        // No array has its initial values: batch-norm statistics and biases are random.
        let mut s = Key { purpose: Purpose::Synthetic, seed: 9, round: 0, epoch: 0 }.stream(0, 0);
        for array in named.iter_mut().filter(|n| n.shape.len() == 1) {
            array.values.iter_mut().for_each(|v| *v = 0.5 + s.uniform(0.0, 1.0));
        }
        let weights = net.from_named(&named).unwrap();
        let batch = batch(1, size, 3);
        let graph = net.graph();
        let values = evaluate(&graph, &named, size, &batch.pixels);
        for (tap, at) in [(FeatureKind::Pooled, graph.pooled), (FeatureKind::Embedding, graph.embedding)] {
            let (found, truth) = (net.features(&weights, &batch, tap), &values[at].2);
            assert_eq!(found.dim, truth.len());
            let largest = truth.iter().fold(1e-3f64, |m, v| m.max(v.abs()));
            let wrong = found.values.iter().zip(truth).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max);
            assert!(wrong < 1e-4 * largest, "{arch:?} {tap:?}: {wrong} of {largest}");
        }
    }
}
