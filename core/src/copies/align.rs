//! One picture is shifted and stretched onto another, then their edges are correlated.
//!
//! A point (u, v) of picture A, from -1 to 1, is at `(u + p0 + p1 u, v + p2 + p3 v)` in picture B. The four numbers minimise the squared difference
//! of both, each with zero mean and unit variance, by Gauss-Newton steps (Lucas and Kanade 1981) at 12, 24 and 48 pixels, each of which
//! begins where the last ended. The likeness is the correlation of the differences between neighbouring pixels, in three colours, over the part that
//! both show: unlike that of the pixels themselves, it is small for different things before the same background.

use super::{SIDE, Thumbnail};

/// Sides of the levels: the picture is halved twice.
const LEVELS: [usize; 3] = [SIDE / 4, SIDE / 2, SIDE];
/// Gauss-Newton steps at every level at the most, and the step, in pixels, that counts as none.
const STEPS: [usize; 3] = [8, 6, 5];
const STILL: f32 = 0.02;
/// Share of the mean curvature that is added to all, for pictures without detail.
const DAMPING: f32 = 1e-3;
/// Share of a picture that both must show.
const SHARED: f32 = 0.6;
/// A correlation at half the size below which the full size is not looked at.
const HOPELESS: f32 = 0.4;
/// A shift of an edge, as a share of the side, from which one picture counts as a part of the other.
const CROPPED: f32 = 0.01;

/// A picture at all levels: three planes each.
pub struct Levels([Vec<f32>; 3]);

impl Levels {
    /// Of `thumbnail`, or of its mirror image.
    pub fn new(thumbnail: &Thumbnail, mirrored: bool) -> Levels {
        let at = |x: usize| if mirrored { SIDE - 1 - x } else { x };
        let value = |i: usize| {
            let (plane, y, x) = (i / (SIDE * SIDE), i / SIDE % SIDE, i % SIDE);
            f32::from(thumbnail.pixels[(y * SIDE + at(x)) * 3 + plane])
        };
        let full: Vec<f32> = (0..3 * SIDE * SIDE).map(value).collect();
        let half = halved(&full, SIDE);
        let quarter = halved(&half, SIDE / 2);
        Levels([quarter, half, full])
    }
}

/// Means of 2 x 2 pixels.
fn halved(planes: &[f32], side: usize) -> Vec<f32> {
    let half = side / 2;
    let value = |i: usize| {
        let (plane, y, x) = (i / (half * half), i / half % half, i % half);
        let at = |dy: usize, dx: usize| planes[plane * side * side + (2 * y + dy) * side + 2 * x + dx];
        (at(0, 0) + at(0, 1) + at(1, 0) + at(1, 1)) / 4.0
    };
    (0..3 * half * half).map(value).collect()
}

/// Two pictures, one on the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Aligned {
    /// Correlation of the edges.
    pub likeness: f32,
    /// Whether one shows only a part of the other.
    pub cropped: bool,
}

/// The correlation of `a` and `b`, one on the other; `None` where they do not come to lie on each other.
pub fn correlation(a: &Levels, b: &Levels) -> Option<Aligned> {
    // Either may be a part of the other; a fit that begins on the larger one can end elsewhere.
    let (forth, back) = (aligned(a, b), aligned(b, a));
    match (forth, back) {
        (Some(x), Some(y)) => Some(if y.likeness > x.likeness { y } else { x }),
        (x, y) => x.or(y),
    }
}

fn aligned(a: &Levels, b: &Levels) -> Option<Aligned> {
    let mut p = [0.0f32; 4];
    for (level, side) in LEVELS.into_iter().enumerate() {
        let (mut first, mut second) = (a.0[level].clone(), b.0[level].clone());
        standardise(&mut first, side);
        standardise(&mut second, side);
        for _ in 0..STEPS[level] {
            let step = step(&first, &second, side, p)?;
            p.iter_mut().zip(step).for_each(|(p, s)| *p += s);
            if step.iter().all(|s| s.abs() * side as f32 / 2.0 < STILL) {
                break;
            }
        }
        if side == SIDE / 2 && edges(&first, &second, side, p)? < HOPELESS {
            return None;
        }
        if side == SIDE {
            // Corners move by p0 +- p1 and p2 +- p3, in half sides.
            let moved = (p[0].abs() + p[1].abs()).max(p[2].abs() + p[3].abs()) / 2.0;
            return Some(Aligned { likeness: edges(&first, &second, side, p)?, cropped: moved > CROPPED });
        }
    }
    None
}

/// Gives every plane zero mean and all of them together unit variance.
fn standardise(planes: &mut [f32], side: usize) {
    for plane in planes.chunks_exact_mut(side * side) {
        let mean = plane.iter().sum::<f32>() / plane.len() as f32;
        plane.iter_mut().for_each(|x| *x -= mean);
    }
    let variance = planes.iter().map(|x| x * x).sum::<f32>() / planes.len() as f32;
    // A grey value of 255 that differs by less than one is flat.
    let scale = 1.0 / variance.sqrt().max(1.0);
    planes.iter_mut().for_each(|x| *x *= scale);
}

/// Where a point of the first picture lies in the second: the pixel to the upper left, and how far beyond it.
fn place(i: usize, side: usize, shift: f32, stretch: f32) -> Option<(usize, f32)> {
    let half = side as f32 / 2.0;
    let u = (i as f32 + 0.5) / half - 1.0;
    let at = i as f32 + (shift + stretch * u) * half;
    (at >= 0.0 && at <= (side - 1) as f32).then(|| {
        let whole = (at as usize).min(side - 2);
        (whole, at - whole as f32)
    })
}

/// One Gauss-Newton step; `None` when the pictures share too little.
fn step(a: &[f32], b: &[f32], side: usize, p: [f32; 4]) -> Option<[f32; 4]> {
    let columns: Vec<Option<(usize, f32)>> = (0..side).map(|x| place(x, side, p[0], p[1])).collect();
    let half = side as f32 / 2.0;
    let (mut curvature, mut slope, mut shared) = ([[0.0f32; 4]; 4], [0.0f32; 4], 0usize);
    for y in 0..side {
        let Some((row, down)) = place(y, side, p[2], p[3]) else { continue };
        let v = (y as f32 + 0.5) / half - 1.0;
        for (x, column) in columns.iter().enumerate() {
            let Some((column, right)) = *column else { continue };
            let u = (x as f32 + 0.5) / half - 1.0;
            shared += 1;
            for plane in 0..3 {
                let of = |dy: usize, dx: usize| b[(plane * side + row + dy) * side + column + dx];
                let (top, bottom) = ([of(0, 0), of(0, 1)], [of(1, 0), of(1, 1)]);
                let above = top[0] + (top[1] - top[0]) * right;
                let below = bottom[0] + (bottom[1] - bottom[0]) * right;
                let value = above + (below - above) * down;
                // Slopes of the interpolated picture, per half side.
                let gx = half * ((top[1] - top[0]) * (1.0 - down) + (bottom[1] - bottom[0]) * down);
                let gy = half * (below - above);
                let error = a[(plane * side + y) * side + x] - value;
                let j = [gx, gx * u, gy, gy * v];
                for i in 0..4 {
                    slope[i] += j[i] * error;
                    for k in 0..=i {
                        curvature[i][k] += j[i] * j[k];
                    }
                }
            }
        }
    }
    if (shared as f32) < SHARED * (side * side) as f32 {
        return None;
    }
    let damping = DAMPING * (0..4).map(|i| curvature[i][i]).sum::<f32>() / 4.0 + f32::MIN_POSITIVE;
    (0..4).for_each(|i| curvature[i][i] += damping);
    Some(solve(curvature, slope))
}

/// Solves `a x = b` by Cholesky; only the lower half of the positive definite `a` is read.
fn solve(mut a: [[f32; 4]; 4], mut b: [f32; 4]) -> [f32; 4] {
    for i in 0..4 {
        for j in 0..=i {
            let rest = a[i][j] - (0..j).map(|k| a[i][k] * a[j][k]).sum::<f32>();
            a[i][j] = if i == j { rest.max(f32::MIN_POSITIVE).sqrt() } else { rest / a[j][j] };
        }
    }
    for i in 0..4 {
        b[i] = (b[i] - (0..i).map(|k| a[i][k] * b[k]).sum::<f32>()) / a[i][i];
    }
    for i in (0..4).rev() {
        b[i] = (b[i] - (i + 1..4).map(|k| a[k][i] * b[k]).sum::<f32>()) / a[i][i];
    }
    b
}

/// Correlation of the differences between neighbouring pixels over the shared part; `None` when it is too small.
fn edges(a: &[f32], b: &[f32], side: usize, p: [f32; 4]) -> Option<f32> {
    let columns: Vec<Option<(usize, f32)>> = (0..side).map(|x| place(x, side, p[0], p[1])).collect();
    let rows: Vec<Option<(usize, f32)>> = (0..side).map(|y| place(y, side, p[2], p[3])).collect();
    // The second picture where the first is; NaN outside.
    let onto = |i: usize| {
        let (plane, y, x) = (i / (side * side), i / side % side, i % side);
        let (Some((row, down)), Some((column, right))) = (rows[y], columns[x]) else { return f32::NAN };
        let of = |dy: usize, dx: usize| b[(plane * side + row + dy) * side + column + dx];
        let above = of(0, 0) + (of(0, 1) - of(0, 0)) * right;
        above + (of(1, 0) + (of(1, 1) - of(1, 0)) * right - above) * down
    };
    let b: Vec<f32> = (0..3 * side * side).map(onto).collect();
    let shared = b[..side * side].iter().filter(|x| !x.is_nan()).count();
    if (shared as f32) < SHARED * (side * side) as f32 {
        return None;
    }
    let (mut both, mut of_a, mut of_b) = (0.0f64, 0.0f64, 0.0f64);
    let mut add = |i: usize, j: usize| {
        let (x, y) = (a[j] - a[i], b[j] - b[i]);
        if !y.is_nan() {
            both += f64::from(x * y);
            of_a += f64::from(x * x);
            of_b += f64::from(y * y);
        }
    };
    for plane in 0..3 {
        for y in 1..side - 1 {
            for x in 1..side - 1 {
                let at = (plane * side + y) * side + x;
                add(at - 1, at + 1);
                add(at - side, at + side);
            }
        }
    }
    let scale = (of_a * of_b).sqrt();
    Some(if scale > 0.0 { (both / scale) as f32 } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A smooth picture of the plane, seen through a window.
    fn seen(left: f32, top: f32, width: f32, height: f32) -> Thumbnail {
        let value = |i: usize| {
            let (pixel, plane) = (i / 3, (i % 3) as f32);
            let x = left + width * ((pixel % SIDE) as f32 + 0.5) / SIDE as f32;
            let y = top + height * ((pixel / SIDE) as f32 + 0.5) / SIDE as f32;
            let waves = (9.0 * x + plane).sin() + (13.0 * y - 5.0 * x).cos() + (21.0 * x * y + 2.0 * plane).sin();
            (128.0 + 40.0 * waves) as u8
        };
        Thumbnail { pixels: (0..SIDE * SIDE * 3).map(value).collect(), small: false }
    }

    #[test]
    fn a_part_is_put_onto_the_whole() {
        let whole = Levels::new(&seen(0.0, 0.0, 1.0, 1.0), false);
        for (left, top, width, height) in [(0.05, 0.05, 0.9, 0.9), (0.0, 0.08, 0.95, 0.9), (0.06, 0.0, 0.94, 1.0)] {
            let part = Levels::new(&seen(left, top, width, height), false);
            let found = correlation(&whole, &part).unwrap();
            assert!(found.likeness > 0.98 && found.cropped, "{left}, {top}: {found:?}");
        }
        let same = correlation(&whole, &whole).unwrap();
        assert!(same.likeness > 0.9999 && !same.cropped);
        let turned = Levels::new(&seen(0.0, 0.0, 1.0, 1.0), true);
        assert!(correlation(&whole, &turned).is_none_or(|found| found.likeness < 0.6));
    }

    /// The four numbers of a window are those by which it was made: a point u of the part is at 0.05 (of 1, so 0.1 of a half side less the
    /// shrinking) in the whole.
    #[test]
    fn steps_find_the_window() {
        let (whole, part) = (seen(0.0, 0.0, 1.0, 1.0), seen(0.02, 0.04, 0.94, 0.9));
        let (mut a, mut b) = (Levels::new(&part, false).0[2].clone(), Levels::new(&whole, false).0[2].clone());
        standardise(&mut a, SIDE);
        standardise(&mut b, SIDE);
        let mut p = [0.0; 4];
        for _ in 0..30 {
            let step = step(&a, &b, SIDE, p).unwrap();
            p.iter_mut().zip(step).for_each(|(p, s)| *p += s);
        }
        // The window's middle is at 0.49 and 0.49, half a width is 0.47 and 0.45: -0.02, -0.06, -0.02, -0.1 in half sides.
        for (found, expected) in p.iter().zip([-0.02, -0.06, -0.02, -0.1]) {
            assert!((found - expected).abs() < 0.006, "{p:?}");
        }
    }

    #[test]
    fn flat_pictures_have_no_likeness() {
        let flat = |grey: u8| Levels::new(&Thumbnail { pixels: vec![grey; SIDE * SIDE * 3], small: false }, false);
        assert!(correlation(&flat(10), &flat(200)).is_none_or(|found| found.likeness == 0.0));
    }

    #[test]
    fn systems_are_solved() {
        let a = [[4.0, 0.0, 0.0, 0.0], [1.0, 3.0, 0.0, 0.0], [0.5, 0.2, 2.0, 0.0], [0.1, 0.3, 0.4, 1.5]];
        let x = solve(a, [1.0, 2.0, 3.0, 4.0]);
        let of = |i: usize, j: usize| if j <= i { a[i][j] } else { a[j][i] };
        for (i, b) in [1.0, 2.0, 3.0, 4.0].into_iter().enumerate() {
            assert!(((0..4).map(|j| of(i, j) * x[j]).sum::<f32>() - b).abs() < 1e-5);
        }
    }
}
