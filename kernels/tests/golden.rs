//! The f32 kernels give the bits they have always given, at every level: a run can be made again years later.

mod common;

use burn::tensor::Device;
use common::{Random, at, levels, tensor, values};
use kernels::{Conv, Level, conv_affine, conv_bn};

/// FNV-1a over the bits of all outputs and gradients of layers that together go through every form of the kernels.
fn fingerprint() -> u64 {
    let device = Device::flex().autodiff();
    let mut random = Random(77);
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for (b, h, w, c, k, kernel, stride, views) in [
        (4, 12, 10, 16, 24, 3, 1, 2),
        (2, 9, 8, 130, 144, 3, 1, 1),
        (2, 4, 4, 256, 264, 3, 1, 1),
        (4, 16, 15, 40, 48, 3, 2, 2),
        (2, 8, 8, 20, 36, 1, 2, 1),
        (2, 12, 12, 3, 16, 3, 1, 1),
        (1, 35, 31, 3, 24, 11, 4, 1),
        (2, 7, 7, 8, 6, 5, 1, 2),
    ] {
        let mut normal = |n: usize| random.normals(n);
        let x = tensor(&normal(b * h * w * c), [b, h, w, c], &device).require_grad();
        let weight = tensor(&normal(k * c * kernel * kernel), [k, c, kernel, kernel], &device).require_grad();
        let (g, s) = (tensor(&normal(k), [k], &device), tensor(&normal(k), [k], &device));
        let conv = Conv { stride, padding: kernel / 2, relu: true };
        let plain = conv_bn(x.clone(), weight.clone(), g.clone(), s.clone(), None, views, conv).output;
        let dims = plain.dims();
        let upstream = tensor(&normal(dims.iter().product()), dims, &device);
        let residual = conv_bn(x.clone(), weight.clone(), g.clone(), s.clone(), Some(upstream.clone()), views, conv);
        let inference = conv_affine(x.clone().inner(), weight.clone().inner(), g.inner(), s.inner(), None, conv);
        let grads = (plain.clone() * upstream.clone()).backward();
        let more = (residual.output.clone() * upstream).backward();
        let mut all = vec![values(&plain), values(&residual.output), values(&inference)];
        all.extend([values(&residual.mean), values(&residual.variance)]);
        for grads in [&grads, &more] {
            all.extend([values(&x.grad(grads).expect("dx")), values(&weight.grad(grads).expect("dw"))]);
        }
        for byte in all.iter().flatten().flat_map(|v| v.to_bits().to_le_bytes()) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    hash
}

#[test]
fn f32_bits_stay_what_they_are() {
    for level in levels() {
        let _held = at(level);
        let expected = match level {
            Level::Portable => 0xdac4_b73a_ba2a_56f3,
            Level::Avx2 => 0x577b_6761_8afd_d6ef,
            Level::Avx512 => 0x402b_80f3_c6f0_2a27,
        };
        assert_eq!(fingerprint(), expected, "{level:?}");
    }
}
