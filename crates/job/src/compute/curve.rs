//! The fit: a sum of physical terms, corrected by neighbours.
//!
//! A family's time is Σ cᵢ·termᵢ with cᵢ ≥ 0, found by least squares of the relative error, with
//! rows that fit badly counted less (a few rounds of reweighting, so that one odd kernel choice
//! does not bend the rest). What a row has beyond the sum, as a logarithm, is kept at its position
//! in the space of logarithmic sizes; a prediction is the sum times the weighted mean of what the
//! rows around it have. Far from all rows the weights vanish and the sum stands alone.

/// Most terms that a family has.
pub(super) const TERMS: usize = 5;
/// Reach of a measured row, in doublings of a size.
const REACH: f64 = 0.5;
/// Weight of "nothing beyond the sum": a row at distance zero outweighs it tenfold.
const PRIOR: f64 = 0.1;
/// Relative error above which a row counts less in the fit.
const TOLERANCE: f64 = 0.05;
const ROUNDS: usize = 6;

/// Where a kernel lies in its family.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// The physical terms, in microseconds per coefficient; unused ones are zero.
    pub terms: [f64; TERMS],
    /// Logarithms of its sizes, to the base 2.
    pub position: [f64; 4],
}

/// One family's fit.
#[derive(Clone, Debug)]
pub(super) struct Curve {
    coefficients: [f64; TERMS],
    rows: Vec<([f64; 4], f64)>,
}

impl Curve {
    /// Fits the measured rows of one family: shapes and microseconds.
    pub(super) fn fit(rows: &[(Shape, f64)]) -> Self {
        let mut trust = vec![1.0; rows.len()];
        let mut coefficients = [0.0; TERMS];
        for _ in 0..ROUNDS {
            coefficients = non_negative(rows, &trust);
            for ((shape, us), trust) in rows.iter().zip(&mut trust) {
                let error = (sum(&coefficients, &shape.terms) / us - 1.0).abs();
                *trust = (TOLERANCE / error.max(TOLERANCE)).sqrt();
            }
        }
        let beyond = |(shape, us): &(Shape, f64)| {
            (shape.position, (us / sum(&coefficients, &shape.terms).max(1e-3)).ln())
        };
        Self { coefficients, rows: rows.iter().map(beyond).collect() }
    }

    /// The fitted coefficients, which scaling to another GPU looks at.
    pub(super) fn coefficients(&self) -> &[f64; TERMS] {
        &self.coefficients
    }

    /// Microseconds of a kernel whose terms cost `cost` times what they cost when measured.
    pub(super) fn predict(&self, shape: &Shape, cost: &[f64; TERMS]) -> f64 {
        let mut terms = shape.terms;
        for (term, cost) in terms.iter_mut().zip(cost) {
            *term *= cost;
        }
        sum(&self.coefficients, &terms) * self.beyond(&shape.position).exp()
    }

    fn beyond(&self, position: &[f64; 4]) -> f64 {
        let (mut total, mut weights) = (0.0, PRIOR);
        for (at, beyond) in &self.rows {
            let squared: f64 = at.iter().zip(position).map(|(a, b)| (a - b) * (a - b)).sum();
            let weight = (-squared / (2.0 * REACH * REACH)).exp();
            total += weight * beyond;
            weights += weight;
        }
        total / weights
    }
}

fn sum(coefficients: &[f64; TERMS], terms: &[f64; TERMS]) -> f64 {
    coefficients.iter().zip(terms).map(|(c, t)| c * t).sum()
}

/// Least squares of the relative error without negative coefficients: the most negative term is
/// left out until none is.
fn non_negative(rows: &[(Shape, f64)], trust: &[f64]) -> [f64; TERMS] {
    let used = |term: usize| rows.iter().any(|(shape, _)| shape.terms[term] != 0.0);
    let mut active: Vec<usize> = (0..TERMS).filter(|&term| used(term)).collect();
    loop {
        let solved = solve(rows, trust, &active);
        let lowest = solved.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1));
        match lowest {
            Some((at, value)) if *value < 0.0 => {
                active.remove(at);
            }
            _ => {
                let mut coefficients = [0.0; TERMS];
                for (&term, value) in active.iter().zip(solved) {
                    coefficients[term] = value;
                }
                return coefficients;
            }
        }
    }
}

/// The normal equations of the active terms, by Gaussian elimination with pivoting.
fn solve(rows: &[(Shape, f64)], trust: &[f64], active: &[usize]) -> Vec<f64> {
    let n = active.len();
    // Terms differ by many orders of magnitude; scaling each to one keeps the pivots meaningful.
    let scale: Vec<f64> = active
        .iter()
        .map(|&term| rows.iter().map(|(shape, us)| shape.terms[term] / us).fold(1e-300, f64::max))
        .collect();
    let mut system = vec![vec![0.0; n + 1]; n];
    for ((shape, us), trust) in rows.iter().zip(trust) {
        let row: Vec<f64> =
            active.iter().zip(&scale).map(|(&term, s)| shape.terms[term] / us / s).collect();
        for i in 0..n {
            for j in 0..n {
                system[i][j] += trust * trust * row[i] * row[j];
            }
            system[i][n] += trust * trust * row[i];
        }
    }
    for (i, equation) in system.iter_mut().enumerate() {
        equation[i] *= 1.0 + 1e-9; // a family with fewer rows than terms still has an answer
    }
    eliminate(&mut system);
    system.iter().zip(&scale).map(|(equation, s)| equation[n] / s).collect()
}

/// Turns a square system with its right side into the solution in the last column.
fn eliminate(system: &mut [Vec<f64>]) {
    let n = system.len();
    for column in 0..n {
        let pivot = (column..n)
            .max_by(|&a, &b| system[a][column].abs().total_cmp(&system[b][column].abs()))
            .expect("a column has a row to pivot on");
        system.swap(column, pivot);
        let divisor = system[column][column];
        for value in &mut system[column] {
            *value /= divisor;
        }
        let row = system[column].clone();
        for (at, other) in system.iter_mut().enumerate() {
            if at != column {
                let factor = other[column];
                for (value, part) in other.iter_mut().zip(&row) {
                    *value -= factor * part;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(x: f64, y: f64) -> Shape {
        Shape { terms: [1.0, x, y, 0.0, 0.0], position: [x.log2(), y.log2(), 0.0, 0.0] }
    }

    /// Oracle: rows made from known coefficients give them back, and so does a shape between them.
    #[test]
    fn a_sum_of_terms_is_found_again() {
        let rows: Vec<(Shape, f64)> = (1..9)
            .flat_map(|x| (1..9).map(move |y| (f64::from(x), f64::from(y))))
            .map(|(x, y)| (shape(x, y), 3.0 + 2.0 * x + 0.5 * y))
            .collect();
        let curve = Curve::fit(&rows);
        for (found, expected) in curve.coefficients.iter().zip([3.0, 2.0, 0.5, 0.0, 0.0]) {
            assert!((found - expected).abs() < 1e-5, "{:?}", curve.coefficients);
        }
        let between = curve.predict(&shape(4.5, 2.5), &[1.0; TERMS]);
        assert!((between - 13.25).abs() < 1e-4, "{between}");
        let slower = curve.predict(&shape(4.5, 2.5), &[1.0, 2.0, 1.0, 1.0, 1.0]);
        assert!((slower - 22.25).abs() < 1e-4, "{slower}");
    }

    /// A term that could only help with a negative coefficient is left out.
    #[test]
    fn no_term_is_negative() {
        let rows: Vec<(Shape, f64)> = (1..30)
            .map(f64::from)
            .map(|x| (shape(x, x * x), 10.0 + 5.0 * x - 0.05 * x * x))
            .collect();
        let curve = Curve::fit(&rows);
        assert!(curve.coefficients.iter().all(|&c| c >= 0.0), "{:?}", curve.coefficients);
    }

    /// An odd row bends the prediction at its own place and nowhere else.
    #[test]
    fn a_neighbour_corrects_only_its_surroundings() {
        let mut rows: Vec<(Shape, f64)> =
            (0..20).map(|i| shape(2_f64.powi(i), 1.0)).map(|s| (s, 2.0 * s.terms[1])).collect();
        rows[10].1 *= 1.2;
        let curve = Curve::fit(&rows);
        let at = |i: i32| curve.predict(&shape(2_f64.powi(i), 1.0), &[1.0; TERMS]);
        assert!(at(10) / 2_f64.powi(11) > 1.1);
        assert!((at(14) / 2_f64.powi(15) - 1.0).abs() < 0.02, "{}", at(14));
    }
}
