//! Robust least squares: few constants, a prediction for each, intervals from what is left.
//!
//! Residuals are logarithms of measured over predicted, so that every size counts alike. Large ones
//! count less (Huber's weights, k = 1.345). Steps are Gauss and Newton's with Levenberg's damping;
//! derivatives are differences. Intervals are Student's with Huber's covariance (Huber, Robust
//! Statistics, 1981, 7.6).

/// Residuals above so many deviations count less.
const HUBER: f64 = 1.345;
/// Steps at most.
const STEPS: usize = 30;
/// The least deviation that is believed: rounding in tables.
const LEAST_DEVIATION: f64 = 1e-4;

/// One constant of a fit, on a scale where steps are natural.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    /// Whether it is a logarithm of the constant.
    pub(super) is_log: bool,
    /// The least and the largest value of the constant.
    pub(super) range: [f64; 2],
    /// A difference that can be felt, in the constant where it is no logarithm.
    pub(super) step: f64,
}

impl Scale {
    fn to(self, value: f64) -> f64 {
        if self.is_log { value.max(f64::MIN_POSITIVE).ln() } else { value }
    }

    fn from(self, place: f64) -> f64 {
        let value = if self.is_log { place.exp() } else { place };
        value.clamp(self.range[0], self.range[1])
    }

    /// From a place to one beside it: downwards where there is room.
    fn beside(self, place: f64) -> f64 {
        let step = if self.is_log { 0.01 } else { (0.01 * place.abs()).max(self.step) };
        let down = place - step;
        if self.to(self.range[0]) <= down { down } else { place + step }
    }
}

/// What was found.
#[derive(Clone, Debug)]
pub(super) struct Fitted {
    /// The constants.
    pub(super) values: Vec<f64>,
    /// Their 95 % intervals; infinite where nothing depends on one.
    pub(super) intervals: Vec<[f64; 2]>,
    /// The logarithm of measured over predicted, for each observation.
    pub(super) residuals: Vec<f64>,
}

/// Fits constants from a start. `predict` gives the logarithm of the prediction of each
/// observation; an error ends the fit.
pub(super) fn fit<E>(
    scales: &[Scale],
    start: &[f64],
    measured: &[f64],
    mut predict: impl FnMut(&[f64]) -> Result<Vec<f64>, E>,
) -> Result<Fitted, E> {
    let values = |places: &[f64]| -> Vec<f64> {
        scales.iter().zip(places).map(|(scale, place)| scale.from(*place)).collect()
    };
    let mut residuals_at = |places: &[f64]| -> Result<Vec<f64>, E> {
        let predicted = predict(&values(places))?;
        Ok(measured.iter().zip(predicted).map(|(measured, log)| measured.ln() - log).collect())
    };
    let mut places: Vec<f64> = scales.iter().zip(start).map(|(s, value)| s.to(*value)).collect();
    let mut residuals = residuals_at(&places)?;
    let mut damping = 1e-3;
    for _ in 0..STEPS {
        let slopes = slopes(scales, &places, &residuals, &mut residuals_at)?;
        let deviation = deviation(&residuals);
        let weights: Vec<f64> = residuals.iter().map(|r| weight(*r, deviation)).collect();
        let before = loss(&residuals, deviation);
        let mut moved = false;
        while damping < 1e9 {
            let Some(step) = solve(&slopes, &weights, Some(&residuals), damping) else { break };
            let next: Vec<f64> = places
                .iter()
                .zip(&step)
                .zip(scales)
                .map(|((place, step), scale)| scale.to(scale.from(place + step)))
                .collect();
            let there = residuals_at(&next)?;
            if loss(&there, deviation) < before {
                let gain = before - loss(&there, deviation);
                moved = gain > 1e-9 * before;
                (places, residuals) = (next, there);
                damping = (damping / 10.0).max(1e-9);
                break;
            }
            damping *= 10.0;
        }
        if !moved {
            break;
        }
    }
    let slopes = slopes(scales, &places, &residuals, &mut residuals_at)?;
    let halves = half_widths(&slopes, &residuals);
    let interval = |((scale, place), half): ((&Scale, &f64), &f64)| {
        [place - half, place + half].map(|place| scale.from(place))
    };
    let intervals = scales.iter().zip(&places).zip(&halves).map(interval).collect();
    Ok(Fitted { values: values(&places), intervals, residuals })
}

/// By constant: how each residual's prediction changes with it.
fn slopes<E>(
    scales: &[Scale],
    places: &[f64],
    residuals: &[f64],
    residuals_at: &mut impl FnMut(&[f64]) -> Result<Vec<f64>, E>,
) -> Result<Vec<Vec<f64>>, E> {
    let mut all = Vec::with_capacity(places.len());
    for at in 0..places.len() {
        let mut beside = places.to_vec();
        beside[at] = scales[at].beside(places[at]);
        let (there, step) = (residuals_at(&beside)?, beside[at] - places[at]);
        all.push(residuals.iter().zip(there).map(|(here, there)| (here - there) / step).collect());
    }
    Ok(all)
}

fn weight(residual: f64, deviation: f64) -> f64 {
    let size = residual.abs() / (HUBER * deviation);
    if size <= 1.0 { 1.0 } else { 1.0 / size }
}

fn loss(residuals: &[f64], deviation: f64) -> f64 {
    let edge = HUBER * deviation;
    let one = |r: &f64| {
        let size = r.abs();
        if size <= edge { 0.5 * size * size } else { edge * (size - 0.5 * edge) }
    };
    residuals.iter().map(one).sum()
}

/// From the middle of the sizes of residuals.
fn deviation(residuals: &[f64]) -> f64 {
    let mut sizes: Vec<f64> = residuals.iter().map(|r| r.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let middle = sizes.get(sizes.len() / 2).copied().unwrap_or(0.0);
    (1.4826 * middle).max(LEAST_DEVIATION)
}

/// The step that weighted residuals ask for; or, without residuals, the diagonal of the inverse.
fn solve(
    slopes: &[Vec<f64>],
    weights: &[f64],
    residuals: Option<&[f64]>,
    damping: f64,
) -> Option<Vec<f64>> {
    let count = slopes.len();
    let product = |a: &[f64], b: &[f64]| -> f64 {
        a.iter().zip(b).zip(weights).map(|((a, b), w)| a * b * w).sum()
    };
    let matrix: Vec<Vec<f64>> = (0..count)
        .map(|row| {
            let of = |column: usize| {
                let damped = if row == column { 1.0 + damping } else { 1.0 };
                damped * product(&slopes[row], &slopes[column])
            };
            (0..count).map(of).collect()
        })
        .collect();
    match residuals {
        Some(residuals) => {
            let wanted = slopes.iter().map(|slope| product(slope, residuals)).collect();
            eliminate(matrix, wanted)
        }
        None => (0..count)
            .map(|at| {
                let unit = (0..count).map(|row| f64::from(row == at)).collect();
                eliminate(matrix.clone(), unit).map(|column| column[at])
            })
            .collect(),
    }
}

/// Solves a small system with pivots; none if it has no single solution.
fn eliminate(mut matrix: Vec<Vec<f64>>, mut wanted: Vec<f64>) -> Option<Vec<f64>> {
    let count = wanted.len();
    // So that columns of different sizes are comparable.
    let sizes: Vec<f64> = (0..count).map(|at| matrix[at][at].abs().sqrt()).collect();
    if sizes.iter().any(|size| !size.is_finite() || *size == 0.0) {
        return None;
    }
    for row in 0..count {
        for column in 0..count {
            matrix[row][column] /= sizes[row] * sizes[column];
        }
        wanted[row] /= sizes[row];
    }
    for at in 0..count {
        let pivot =
            (at..count).max_by(|a, b| matrix[*a][at].abs().total_cmp(&matrix[*b][at].abs()))?;
        if matrix[pivot][at].abs() < 1e-10 {
            return None;
        }
        matrix.swap(at, pivot);
        wanted.swap(at, pivot);
        for row in at + 1..count {
            let factor = matrix[row][at] / matrix[at][at];
            let above = matrix[at].clone();
            for (value, above) in matrix[row].iter_mut().zip(above).skip(at) {
                *value -= factor * above;
            }
            wanted[row] -= factor * wanted[at];
        }
    }
    for at in (0..count).rev() {
        let known: f64 = (at + 1..count).map(|column| matrix[at][column] * wanted[column]).sum();
        wanted[at] = (wanted[at] - known) / matrix[at][at];
    }
    Some(wanted.iter().zip(sizes).map(|(value, size)| value / size).collect())
}

/// Half of the 95 % interval of each constant, on its scale.
fn half_widths(slopes: &[Vec<f64>], residuals: &[f64]) -> Vec<f64> {
    let (count, all) = (slopes.len(), residuals.len());
    let ones = vec![1.0; all];
    let inverse = solve(slopes, &ones, None, 0.0);
    let (Some(inverse), true) = (inverse, count < all) else { return unknown(slopes) };
    let deviation = deviation(residuals);
    let clipped = |r: &f64| weight(*r, deviation) * r;
    let squares: f64 = residuals.iter().map(|r| clipped(r).powi(2)).sum();
    let whole = residuals.iter().filter(|r| r.abs() <= HUBER * deviation).count() as f64;
    let share = (whole / all as f64).max(0.1);
    let more = 1.0 + count as f64 / all as f64 * (1.0 - share) / share;
    let variance = squares / (all - count) as f64 / share.powi(2) * more.powi(2);
    let variance = variance.max(LEAST_DEVIATION.powi(2));
    let student = student_975((all - count) as f64);
    inverse.iter().map(|own| student * (variance * own.max(0.0)).sqrt()).collect()
}

/// Half-widths where not all constants are determined: infinite for those on which nothing depends,
/// or else for the last, which says nothing that the others do not.
fn unknown(slopes: &[Vec<f64>]) -> Vec<f64> {
    let is_idle = |slope: &Vec<f64>| slope.iter().all(|slope| slope.abs() < 1e-12);
    let half = |is_unknown: bool| if is_unknown { f64::INFINITY } else { 0.0 };
    let some = slopes.iter().any(is_idle);
    let last = slopes.len().saturating_sub(1);
    let one =
        |(at, slope): (usize, &Vec<f64>)| half(if some { is_idle(slope) } else { at == last });
    slopes.iter().enumerate().map(one).collect()
}

/// The 97.5 % quantile of Student's distribution (Abramowitz and Stegun 26.7.5; exact for one and
/// two degrees of freedom).
pub(super) fn student_975(freedom: f64) -> f64 {
    if freedom < 1.5 {
        return 12.706;
    }
    if freedom < 2.5 {
        return 4.303;
    }
    let (x, n) = (1.959_964_f64, freedom);
    let (x3, x5, x7) = (x.powi(3), x.powi(5), x.powi(7));
    let g1 = (x3 + x) / 4.0;
    let g2 = (5.0 * x5 + 16.0 * x3 + 3.0 * x) / 96.0;
    let g3 = (3.0 * x7 + 19.0 * x5 + 17.0 * x3 - 15.0 * x) / 384.0;
    x + g1 / n + g2 / n.powi(2) + g3 / n.powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Random;

    /// Oracle: tables of Student's distribution.
    #[test]
    fn students_quantiles_are_those_of_tables() {
        for (freedom, known) in [(1.0, 12.706), (3.0, 3.182), (5.0, 2.571), (10.0, 2.228)] {
            assert!((student_975(freedom) / known - 1.0).abs() < 0.01, "{freedom}");
        }
        assert!((student_975(1e6) - 1.960).abs() < 1e-3);
    }

    /// A line in time with noise and an outlier: the intervals hold the truth in 95 of 100 cases,
    /// within what chance allows.
    #[test]
    fn intervals_hold_the_truth() {
        let sizes: Vec<f64> = (10..30).map(|power| f64::from(1 << power)).collect();
        let latency = Scale { is_log: false, range: [0.0, 1e9], step: 0.05 };
        let rate = Scale { is_log: true, range: [1e-3, 1e6], step: 0.0 };
        let mut held = [0; 2];
        for case in 0..200 {
            let mut random = Random::new(case, "fit", 0);
            let truth = [5.0 + 30.0 * random.unit(), 1e3 * (1.0 + 400.0 * random.unit())];
            let at = |values: &[f64], size: f64| values[0] + size / values[1];
            let mut measured: Vec<f64> = sizes
                .iter()
                .map(|size| at(&truth, *size) * (0.02 * random.normal()).exp())
                .collect();
            measured[case as usize % 20] *= 1.5;
            let predict = |values: &[f64]| -> Result<Vec<f64>, ()> {
                Ok(sizes.iter().map(|size| at(values, *size).ln()).collect())
            };
            let found = fit(&[latency, rate], &[1.0, 1e4], &measured, predict).expect("it can");
            for (held, (interval, truth)) in held.iter_mut().zip(found.intervals.iter().zip(truth))
            {
                *held += i32::from(interval[0] <= truth && truth <= interval[1]);
            }
        }
        assert!(held.iter().all(|held| (180..=199).contains(held)), "{held:?} of 200");
    }

    /// What nothing depends on has no interval.
    #[test]
    fn what_is_not_determined_has_no_interval() {
        let scale = Scale { is_log: false, range: [0.0, 1e9], step: 0.05 };
        let predict = |values: &[f64]| -> Result<Vec<f64>, ()> { Ok(vec![values[0].ln(); 6]) };
        let measured = [3.0, 3.1, 2.9, 3.0, 3.05, 2.95];
        let found = fit(&[scale, scale], &[1.0, 1.0], &measured, predict).expect("it can");
        assert!(found.intervals.iter().any(|interval| interval[1] >= 1e9), "{found:?}");
    }
}
