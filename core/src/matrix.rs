//! A matrix of row vectors: what the network makes of images, and what clustering and evaluation take.

/// `rows` vectors of `dim` numbers, one after the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matrix {
    /// How many vectors.
    pub rows: usize,
    /// How long each is.
    pub dim: usize,
    /// `rows * dim` values, row by row.
    pub values: Vec<f32>,
}

impl Matrix {
    /// Wraps `values`, whose length must be a multiple of `dim`.
    pub fn new(dim: usize, values: Vec<f32>) -> Self {
        assert!(dim > 0 && values.len().is_multiple_of(dim), "{} values do not make rows of {dim}", values.len());
        Matrix { rows: values.len() / dim, dim, values }
    }

    /// Row `i`.
    pub fn row(&self, i: usize) -> &[f32] {
        &self.values[i * self.dim..(i + 1) * self.dim]
    }

    /// The same rows with unit length; a zero row stays zero.
    pub fn normalised(mut self) -> Self {
        for row in self.values.chunks_mut(self.dim) {
            normalise(row);
        }
        self
    }

    /// Mean over the dimensions of the standard deviation over the rows: near zero when a network has collapsed.
    pub fn spread(&self) -> f64 {
        if self.rows == 0 {
            return 0.0;
        }
        let n = self.rows as f64;
        let mut sum = vec![0.0f64; self.dim];
        let mut squares = vec![0.0f64; self.dim];
        for row in self.values.chunks(self.dim) {
            for (d, &x) in row.iter().enumerate() {
                sum[d] += f64::from(x);
                squares[d] += f64::from(x) * f64::from(x);
            }
        }
        let deviation = |d: usize| (squares[d] / n - (sum[d] / n).powi(2)).max(0.0).sqrt();
        (0..self.dim).map(deviation).sum::<f64>() / self.dim as f64
    }
}

/// Scales `row` to unit length; a zero row stays zero.
pub fn normalise(row: &mut [f32]) {
    let length = row.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt();
    if length > 0.0 {
        for x in row {
            *x = (f64::from(*x) / length) as f32;
        }
    }
}

/// Dot product, summed in eight fixed lanes so that it vectorises and always gives the same bits.
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 8];
    let (ca, cb) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f32 = ca.remainder().iter().zip(cb.remainder()).map(|(x, y)| x * y).sum();
    for (x, y) in ca.zip(cb) {
        for l in 0..8 {
            lanes[l] += x[l] * y[l];
        }
    }
    lanes.iter().sum::<f32>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_of_identical_rows_is_zero() {
        let f = Matrix::new(2, vec![0.6, 0.8, 0.6, 0.8, 0.6, 0.8]);
        assert!(f.spread() < 1e-7);
        let f = Matrix::new(1, vec![1.0, -1.0]);
        assert!((f.spread() - 1.0).abs() < 1e-12);
        assert_eq!(Matrix::default().spread(), 0.0);
    }

    #[test]
    fn zero_rows_stay_zero() {
        let f = Matrix::new(2, vec![0.0, 0.0, 3.0, 4.0]).normalised();
        assert_eq!(f.values, vec![0.0, 0.0, 0.6, 0.8]);
    }

    #[test]
    fn dot_matches_a_plain_sum() {
        let a: Vec<f32> = (0..13).map(|i| i as f32).collect();
        assert_eq!(dot(&a, &a), 650.0);
    }
}
