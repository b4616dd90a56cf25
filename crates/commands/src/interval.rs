//! How sure a prediction is: an 80 % interval beside it.
//!
//! The interval is made from errors on published measurements ([`Residuals`]). Each error is that
//! of a cluster which had no part in it: every constant that measurements set was set again without
//! that cluster ([`left_out`](crate::validate::left_out)). A [`Class`] says which measurements are
//! like a prediction: a collective's size, whether it leaves its server, the library and what it
//! runs over; a step's kind of model, chip and precision. The half-width is the size of error that
//! four in five keep to, from the mean size in the class. A class of few rows leans on the wider
//! class around it, the more the fewer they are.
//!
//! Rows of one log resemble each other, which is why the cluster of a scored row has no part in its
//! interval. Otherwise every row counts the same.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use job::compute::GpuRates;
use job::compute::rates::{self, Size};
use job::config::Precision;
use job::model::Model;
use scenario::Loaded;
use serde::Serialize;
use traffic::collective::Collective;
use traffic::nccl::Architecture;

use crate::engine::Engine;
use crate::world::JobWorld;

/// Four in five errors are within so many mean sizes, whether they are spread like Laplace's (ln 5)
/// or like Gauss's (1.2816 over √(2/π)). The mean of few rows is surer than their quantile.
const MEANS: f64 = 1.61;

/// What the class around a class is worth beside its own rows: as much as four of them.
const PRIOR: f64 = 4.0;

/// What a prediction is like, from the general to the particular.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Class(Vec<String>);

impl Class {
    /// Of one collective. `over` is the transport, or the scale-up network if it stays inside.
    pub fn of_collective(
        collective: Collective,
        architecture: Architecture,
        (inside, over): (bool, &str),
        bytes: u64,
    ) -> Self {
        const MIB: u64 = 1 << 20;
        let size = match bytes {
            bytes if bytes < MIB => "below 1 MiB",
            bytes if bytes < 32 * MIB => "1 to 32 MiB",
            bytes if bytes <= 512 * MIB => "32 to 512 MiB",
            _ => "above 512 MiB",
        };
        let library = match (collective, architecture) {
            (Collective::SendRecv, _) => "host",
            (collective, _) if collective.is_expert_parallel() => "DeepEP",
            (_, Architecture::Cdna3) => "RCCL",
            _ => "NCCL",
        };
        let reach = if inside { "inside" } else { "network" };
        // The generations of NVLink are one kind.
        let over = if over.starts_with("nvlink") { "nvlink" } else { over };
        Self(["collective", size, reach, library, over].map(str::to_owned).to_vec())
    }

    /// Of one step.
    pub fn of_step(
        architecture: Option<Architecture>,
        model: &Model,
        precision: Precision,
    ) -> Self {
        let kind = if model.experts.is_some() { "experts" } else { "dense" };
        let chip = match architecture {
            Some(Architecture::Ampere) => "Ampere",
            Some(Architecture::Pcie) => "cards",
            Some(Architecture::Hopper) => "Hopper",
            Some(Architecture::Blackwell) => "Blackwell",
            Some(Architecture::Cdna3) => "CDNA",
            None => "other chips",
        };
        let precision = format!("{precision:?}").to_lowercase();
        Self(vec!["step".to_owned(), kind.to_owned(), chip.to_owned(), precision])
    }

    /// Of large collectives between servers, over whatever transport.
    pub fn between_servers() -> Self {
        Self(["collective", "32 to 512 MiB", "network"].map(str::to_owned).to_vec())
    }

    /// Whether it is of steps with experts.
    pub(crate) fn has_experts(&self) -> bool {
        self.0.get(1).is_some_and(|kind| kind == "experts")
    }

    /// All of its words, from the general to the particular.
    pub fn name(&self) -> String {
        self.0.join(" / ")
    }

    /// The size of a collective, in words.
    pub(crate) fn size(&self) -> Option<&str> {
        self.0.get(1).filter(|_| self.0[0] == "collective").map(String::as_str)
    }

    fn read(name: &str) -> Self {
        Self(name.split(" / ").map(str::to_owned).collect())
    }
}

/// The error of one published measurement, its cluster left out of every constant.
#[derive(Clone, Debug, PartialEq)]
pub struct Residual {
    /// Which measurement.
    pub id: String,
    /// Whose.
    pub cluster: String,
    /// What it is like.
    pub class: Class,
    /// ln (measured time / predicted time) in closed form.
    pub analytic: f64,
    /// The same on flows.
    pub flow: f64,
}

/// The errors on published measurements.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Residuals(pub Vec<Residual>);

/// How far a prediction may be off, and who says so.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HalfWidth {
    /// In logarithms: four in five are within a factor of `e` to this.
    pub log: f64,
    /// The most particular class that has errors. Those of the classes around it count too.
    pub class: String,
    /// Rows of that class.
    pub rows: usize,
    /// Their clusters.
    pub clusters: usize,
    /// Whether most of it comes from wider classes than the prediction's own.
    pub is_borrowed: bool,
}

impl HalfWidth {
    /// The same for a GPU of which no product was published: measurements of its class are of
    /// other GPUs.
    pub(crate) fn for_rates(self, rates: &GpuRates) -> Self {
        let large = rates.ratio(rates::Class::Bf16(Size::Large));
        let by_rule = large.is_some_and(|ratio| ratio.extrapolated);
        Self { is_borrowed: self.is_borrowed || by_rule, ..self }
    }
}

impl Residuals {
    /// Those in the binary: `validation/residuals.csv`.
    pub fn published() -> &'static Self {
        static PUBLISHED: OnceLock<Residuals> = OnceLock::new();
        PUBLISHED.get_or_init(|| Self::read(&embedded::text!("residuals.csv")))
    }

    /// Reads what [`text`](Self::text) wrote.
    fn read(text: &str) -> Self {
        let row = |line: &str| {
            let fields: Vec<&str> = line.split(',').collect();
            let &[id, cluster, class, analytic, flow] = &fields[..] else { return None };
            Some(Residual {
                id: id.to_owned(),
                cluster: cluster.to_owned(),
                class: Class::read(class),
                analytic: analytic.parse().ok()?,
                flow: flow.parse().ok()?,
            })
        };
        Self(text.lines().skip(1).filter_map(row).collect())
    }

    /// As a table.
    pub fn text(&self) -> String {
        let mut text = "id,cluster,class,analytic,flow\n".to_owned();
        for Residual { id, cluster, class, analytic, flow } in &self.0 {
            text += &format!("{id},{cluster},{},{analytic:.4},{flow:.4}\n", class.name());
        }
        text
    }

    /// How far a prediction of this class may be off, by clusters other than `without`. From the
    /// general to the particular, the rows of each class move the mean of the class around it.
    pub fn half_width(&self, class: &Class, engine: Engine, without: &str) -> HalfWidth {
        let mut half = HalfWidth::default();
        let mut mean = 0.0;
        for length in 1..=class.0.len() {
            let pool = self.pool(&class.0[..length], engine, without);
            if pool.rows == 0 {
                break;
            }
            let prior = if length == 1 { 0.0 } else { PRIOR };
            let own = pool.rows as f64;
            mean = (pool.sum + prior * mean) / (own + prior);
            half = HalfWidth {
                log: MEANS * mean,
                class: class.0[..length].join(" / "),
                rows: pool.rows,
                clusters: pool.clusters,
                is_borrowed: length < class.0.len() || own < PRIOR,
            };
        }
        half
    }

    /// The errors of a class, by clusters other than `without`.
    fn pool(&self, prefix: &[String], engine: Engine, without: &str) -> Pool {
        let mut clusters = BTreeSet::new();
        let mut pool = Pool::default();
        let rows = self.0.iter().filter(|row| row.cluster != without);
        for row in rows.filter(|row| row.class.0.starts_with(prefix)) {
            let error = if engine.has_contention() { row.flow } else { row.analytic };
            clusters.insert(&row.cluster);
            pool.sum += error.abs();
            pool.rows += 1;
        }
        Pool { clusters: clusters.len(), ..pool }
    }

    /// Whether collectives over the scale-up network of a class were measured at any size; those
    /// that leave it are of classes that go by the transport.
    pub(crate) fn has_scale_up(&self, class: &Class) -> bool {
        let [_, _, reach, .., over] = &class.0[..] else { return true };
        let is_same =
            |row: &Residual| row.class.0.get(2) == Some(reach) && row.class.0.last() == Some(over);
        reach != "inside" || self.0.iter().any(is_same)
    }

    /// How far a step may be off of which `exposed` is communication. Published steps expose
    /// little; what a step exposes is off by as much as collectives between servers are, beside
    /// what else is.
    pub fn of_step(&self, class: &Class, engine: Engine, without: &str, exposed: f64) -> HalfWidth {
        let network = self.half_width(&Class::between_servers(), engine, without);
        let step = self.half_width(class, engine, without);
        HalfWidth { log: step.log.hypot(exposed * network.log), ..step }
    }
}

/// Errors of one class.
#[derive(Default)]
struct Pool {
    sum: f64,
    rows: usize,
    clusters: usize,
}

/// A prediction's least and most, at 80 %, for a time; a rate's are the other way round.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The least, as a multiple of the prediction.
    pub low: f64,
    /// The most.
    pub high: f64,
    /// Where it comes from, in words.
    pub why: String,
}

impl Interval {
    /// By errors on measurements of its kind. A class that had to be borrowed is widened by what
    /// open inputs allow: `ends` are the prediction's least and most as multiples of it. Rows of a
    /// class of its own had such inputs too, so their errors have that in them.
    pub fn of(half: &HalfWidth, ends: Option<(f64, f64)>) -> Self {
        let HalfWidth { log, class, rows, clusters, is_borrowed } = half;
        let count = |number: usize, word: &str| {
            let plural = if number == 1 { "" } else { "s" };
            format!("{number} {word}{plural}")
        };
        let (rows, clusters) = (count(*rows, "measurement"), count(*clusters, "cluster"));
        let mut why = format!("80 %, from {rows} of {clusters} ({class}) and from wider classes");
        let (mut below, mut above) = (*log, *log);
        if let Some((low, high)) = ends.filter(|_| *is_borrowed) {
            // What a class of its own would be off by in one direction is in neither: they add up.
            below -= low.min(1.0).ln();
            above += high.max(1.0).ln();
            why += ", widened by the ends of what is not known";
        }
        Self { low: (-below).exp(), high: above.exp(), why }
    }

    /// Of a collective on a scenario's fabric, inside its scale-up domain or not.
    pub fn of_collective(
        loaded: &Loaded,
        engine: Engine,
        collective: Collective,
        (inside, bytes): (bool, u64),
        ends: impl FnOnce() -> Option<(f64, f64)>,
    ) -> Self {
        let scenario = &loaded.scenario;
        let gpu = scenario.catalogue.gpu.get(&scenario.cluster.gpu);
        let scale_up = gpu.map_or("", |gpu| gpu.scale_up_name.as_str());
        let over = if inside { scale_up } else { scenario.network.transport.name() };
        let architecture = Architecture::of_scale_up(scale_up).unwrap_or(Architecture::Hopper);
        let class = Class::of_collective(collective, architecture, (inside, over), bytes);
        let residuals = Residuals::published();
        let ends = if residuals.has_scale_up(&class) { None } else { ends() };
        Self::of(&residuals.half_width(&class, engine, ""), ends)
    }

    /// Of a step of which `exposed` is communication that nothing hides. `ends` is asked for what
    /// the ends of the GPU's kernel rates make of the step, if that counts: where no step of the
    /// kind was measured, or no kernel of the GPU.
    pub fn of_step(
        world: &JobWorld<'_>,
        engine: Engine,
        exposed: f64,
        ends: impl FnOnce() -> Option<(f64, f64)>,
    ) -> Self {
        let architecture = Architecture::of_scale_up(&world.gpu.scale_up_name);
        let class = Class::of_step(architecture, &world.job.model, world.job.precision);
        let half = Residuals::published().of_step(&class, engine, "", exposed);
        let half = half.for_rates(&world.rates);
        let ends = if half.is_borrowed { ends() } else { None };
        Self::of(&half, ends)
    }

    /// The least and the most of a time.
    pub fn of_time(&self, time: f64) -> (f64, f64) {
        (time * self.low, time * self.high)
    }

    /// The least and the most of a rate.
    pub fn of_rate(&self, rate: f64) -> (f64, f64) {
        (rate / self.high, rate / self.low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn residual(cluster: &str, class: &str, error: f64) -> Residual {
        let (id, cluster) = (String::new(), cluster.to_owned());
        Residual { id, cluster, class: Class::read(class), analytic: error, flow: 2.0 * error }
    }

    const HOPPER: &str = "step / dense / Hopper / bf16";

    /// Sixteen rows of each of three clusters with errors of 1 to 16 %, 8.5 % on average.
    fn forty_eight() -> Residuals {
        let names = ["a", "b", "c"];
        let rows = (1..=16).flat_map(|percent| {
            names.map(|name| residual(name, HOPPER, 0.01 * f64::from(percent)))
        });
        Residuals(rows.collect())
    }

    #[test]
    fn the_half_width_follows_the_mean_error() {
        let (all, class) = (forty_eight(), Class::read(HOPPER));
        let half = all.half_width(&class, Engine::Analytic, "");
        assert!((half.log - MEANS * 0.085).abs() < 1e-12, "{half:?}");
        assert!((all.half_width(&class, Engine::Flow, "").log - MEANS * 0.17).abs() < 1e-12);
        assert!(!half.is_borrowed && half.rows == 48 && half.clusters == 3);
        let half = all.half_width(&class, Engine::Analytic, "a");
        assert!(half.clusters == 2 && half.rows == 32);
        let none = all.half_width(&Class::read("collective"), Engine::Analytic, "");
        assert_eq!(none, HalfWidth::default());
    }

    /// One row beside forty-eight: it counts for a fifth in its own class, and in the one around it
    /// for as much as any other.
    #[test]
    fn a_class_of_few_rows_leans_on_the_class_around_it() {
        let mut all = forty_eight();
        let other = "step / experts";
        all.0.push(residual("d", other, 0.2));
        let half = all.half_width(&Class::read(other), Engine::Analytic, "");
        let around = (48.0 * 0.085 + 0.2) / 49.0;
        assert!((half.log - MEANS * (0.2 + 4.0 * around) / 5.0).abs() < 1e-12, "{half:?}");
        assert!(half.is_borrowed && half.class == other && half.rows == 1);
        // A class that nobody has measured is as sure as the one around it.
        let further = all.half_width(&Class::read("step / experts / B"), Engine::Analytic, "");
        assert!(further.is_borrowed && further.log == half.log && further.class == other);
    }

    #[test]
    fn what_is_borrowed_is_widened() {
        let half = |is_borrowed| HalfWidth {
            log: 0.03,
            class: "step".to_owned(),
            rows: 20,
            clusters: 3,
            is_borrowed,
        };
        let ends = Some((0.9, 0.04_f64.exp()));
        let own = Interval::of(&half(false), ends);
        assert!((own.high - 0.03_f64.exp()).abs() < 1e-12);
        let borrowed = Interval::of(&half(true), ends);
        assert!((borrowed.high - 0.07_f64.exp()).abs() < 1e-12);
        assert!(borrowed.low < 0.9 * 0.98);
    }

    #[test]
    fn the_table_in_the_binary_is_read_back() {
        let published = Residuals::published();
        assert!(200 < published.0.len(), "{}", published.0.len());
        assert_eq!(Residuals::read(&published.text()), *published);
    }
}
