//! What people see of a predicted step.

use job::model::Recomputed;
use job::{Axis, Job, stages};
use report::chart::distinct;
use report::number::{dollars, grouped, significant, watts, with_ends};
use report::{Align, Answer, Chart, ChartKind, Frame, Sheet, Table, Unit};
use scenario::Loaded;
use step::money::Bill;
use units::{Bytes, Span};

use super::lanes::Lanes;
use super::{Circuits, Memory, Report, Verdict};
use crate::engine::Engine;
use crate::targets;
use crate::world::JobWorld;

/// Busy links that a terminal tells of.
const TOLD_LINKS: usize = 3;

/// Pairs of pods whose circuits are told.
const TOLD_CIRCUITS: usize = 16;

/// What charts and headings need besides the result.
#[derive(Clone, Debug, Default)]
pub(super) struct Drawn {
    pub(super) title: String,
    pub(super) engine: Engine,
    pub(super) lanes: Lanes,
    pub(super) job: String,
    /// (p - 1) / (m v), of the time without bubble.
    pub(super) textbook_bubble: f64,
    /// GPUs of the cluster.
    pub(super) cluster_gpus: u64,
}

impl Drawn {
    pub(super) fn of(loaded: &Loaded, world: &JobWorld<'_>, engine: Engine, lanes: Lanes) -> Self {
        let job = world.job;
        let rounds = (job.microbatches * job.layout.vpp).max(1);
        Self {
            title: loaded.title(),
            engine,
            lanes,
            job: job_words(job),
            textbook_bubble: (job.layout.pp - 1) as f64 / rounds as f64,
            cluster_gpus: world.fabric().gpus() as u64,
        }
    }
}

/// The job in a line.
pub(crate) fn job_words(job: &Job) -> String {
    let layout = &job.layout;
    let mut text = job.model.name.to_string();
    let degrees = [
        ("TP", layout.tp),
        ("CP", layout.cp),
        ("PP", layout.pp),
        ("DP", layout.dp),
        ("EP", layout.ep),
    ];
    for (name, degree) in degrees.iter().filter(|(_, degree)| 1 < *degree) {
        text += &format!(", {name} {degree}");
    }
    if job.model.experts.is_some() && layout.etp != layout.tp {
        text += &format!(", expert TP {}", layout.etp);
    }
    let rows = job.parallel.padded(job.model.vocab);
    if rows != job.model.vocab {
        text += &format!(", vocabulary padded to {} (vocab_multiple)", grouped(rows));
    }
    if 1 < layout.vpp {
        text += &format!(", {} virtual stages", layout.vpp);
    }
    if job.stage_layers.iter().any(|layers| *layers != job.stage_layers[0]) {
        text += &format!(", stages of {} layers", stages::in_words(&job.stage_layers));
    }
    text += &habits(job);
    text + &format!(
        "; {} sequences of {} tokens, {} microbatches",
        grouped(job.batch.sequences),
        grouped(job.batch.length),
        grouped(job.microbatches)
    )
}

/// What a layout does not say by its degrees: sharding, what is hidden, what is computed again.
fn habits(job: &Job) -> String {
    let (layout, parallel) = (&job.layout, &job.parallel);
    let mut text = String::new();
    if 1 < layout.dp * layout.cp {
        text += &format!(", sharding {}", parallel.sharding.word());
    }
    let is_cut = |axis: &&Axis| match axis {
        Axis::Tp => 1 < layout.tp,
        Axis::Cp => 1 < layout.cp,
        Axis::Ep => 1 < layout.ep,
        Axis::Pp => 1 < layout.pp,
        Axis::Dp => 1 < layout.dp,
    };
    if 1 < layout.gpus() {
        let hidden = parallel.overlap.iter().filter(is_cut).map(|axis| axis.word());
        let hidden: Vec<&str> = hidden.collect();
        let words = if hidden.is_empty() { "none".to_owned() } else { hidden.join(" and ") };
        text += &format!(", overlap {words}");
    }
    let again = job.recompute;
    text += match () {
        () if again.is_full() => ", full recompute",
        () if again != Recomputed::NONE => ", some recompute",
        () => "",
    };
    text
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn span(seconds: f64) -> String {
    format!("{:.3}", Span::from_secs_f64(seconds))
}

impl Answer for Report {
    fn engine(&self) -> Option<&'static str> {
        Some(self.drawn.engine.name())
    }

    fn sheet(&self) -> Sheet {
        let Drawn { title, engine, job, .. } = &self.drawn;
        let mut sheet = Sheet::new()
            .heading(format!("{title}: one step, {} engine", engine.name()))
            .text(format!("{job}; {}.", self.share_words()));
        sheet = self.headline(self.verdict.show(sheet));
        // What was scaled is said right below the figures that rest on it.
        if let Some(scaled) = &self.scaled {
            sheet = sheet.note(scaled.words());
        }
        sheet = targets::show(sheet, &self.targets).text(self.interval_words());
        sheet = sheet.text(self.way_words());
        if let Some(seeds) = &self.seeds {
            sheet = seeds.show(sheet);
        }
        sheet = self.capture.iter().fold(sheet, |sheet, told| sheet.text(told.words()));
        if let Some(campaign) = &self.campaign {
            sheet = campaign.show(sheet);
        }
        sheet = sheet.heading("Where the time goes").chart(self.waterfall());
        sheet = sheet.text(format!("Besides computation the most is {}.", self.constraint));
        if let Some(whole) = &self.whole {
            sheet = whole.show_faults(sheet);
        }
        sheet = sheet.on_page(self.over_time());
        sheet = sheet.heading("What the fabric made of it").table(self.phase_table());
        if self.phases.iter().any(|row| !row.on_fabric) {
            sheet = sheet.text("–: not on the fabric; by closed form.");
        }
        for finding in &self.findings {
            sheet = sheet.note(finding);
        }
        if let Some(whole) = &self.whole {
            let met = Sheet::new().heading("What met in the step").table(whole.table());
            sheet = sheet.on_page(met);
        }
        sheet = self.links_part(sheet);
        if let Some(circuits) = &self.circuits {
            sheet = circuits_part(sheet, circuits);
        }
        self.free_part(sheet).on_page(self.tables())
    }
}

impl Report {
    /// What would be gained if the busiest link were free.
    fn free_part(&self, mut sheet: Sheet) -> Sheet {
        if let Some(free) = &self.what_if {
            let (link, used) = (&free.link, percent(free.utilisation));
            let gain = match free.gained {
                ..0.0005 => "the step would take as long: others are as busy".to_owned(),
                gained => {
                    format!("the step would take {}, {} less", span(free.step_s), percent(gained))
                }
            };
            sheet = sheet.text(format!(
                "What if: with {link} free, which is in use {used} of the step, {gain}."
            ));
        }
        sheet
    }

    /// The step by cause, along its critical path, and over time.
    fn over_time(&self) -> Sheet {
        let mut sheet = Sheet::new().heading("Causes").chart(self.causes_s.chart());
        sheet = sheet.text(self.causes_s.words()).text(self.attribution_words());
        sheet = sheet.heading("The critical path").text("Its longest stretches, in their order:");
        sheet = sheet.table(self.path_table());
        sheet = sheet.heading("The step over time").chart(self.drawn.lanes.ranks());
        for chart in self.drawn.lanes.network().into_iter().chain(self.drawn.lanes.heat()) {
            sheet = sheet.chart(chart);
        }
        sheet
    }

    fn tables(&self) -> Sheet {
        Sheet::new()
            .heading("The model")
            .table(self.model.table())
            .heading("Memory of a GPU")
            .table(memory_table(&self.memory))
            .heading("Failures and checkpoints")
            .table(self.reliability_table())
            .heading("Goodput if it were different")
            .table(self.variants_table())
            .heading("Power and money")
            .table(self.money_table())
    }
}

impl Verdict {
    fn show(&self, sheet: Sheet) -> Sheet {
        let mut sheet = sheet.note(&self.text);
        if self.levers.is_empty() {
            return sheet;
        }
        let mut table = Table::new([
            ("worth a try", Align::Left),
            ("at most", Align::Right),
            ("why", Align::Left),
        ]);
        for lever in &self.levers {
            table.row([lever.name.clone(), span(lever.most_s), lever.why.clone()]);
        }
        sheet = sheet.table(table);
        let commands: Vec<&str> = self.levers.iter().map(|lever| lever.command.as_str()).collect();
        sheet.verbatim(commands.join("\n"))
    }
}

impl Report {
    /// How many GPUs the job has, and of how many where others are left.
    fn share_words(&self) -> String {
        let (gpus, all) = (grouped(self.gpus), self.drawn.cluster_gpus);
        match self.gpus < all {
            true => format!("{gpus} of the cluster's {} GPUs", grouped(all)),
            false => format!("{gpus} GPUs"),
        }
    }

    /// How the step was put together, and how even several are.
    fn way_words(&self) -> String {
        let way = match &self.whole {
            Some(whole) => whole.words(self.step_s),
            None => "Two-level: phases one by one, in a timeline of one rank for each stage \
                     (--whole runs every rank on one clock)."
                .to_owned(),
        };
        match &self.steps {
            Some(steps) => format!("{way} {}", steps.words()),
            None => way,
        }
    }

    /// How sure the step is, and what follows from it.
    fn interval_words(&self) -> String {
        let Self { interval, step_low_s, step_high_s, .. } = self;
        let [slow, fast] = [step_high_s, step_low_s].map(|step| self.step_s / step);
        let tokens = [slow, fast].map(|factor| grouped((factor * self.tokens_per_s) as u64));
        format!(
            "Interval: step {} to {}, MFU {} to {}, {:.0} to {:.0} TFLOP/s, {} to {} tokens/s; {}.",
            span(*step_low_s),
            span(*step_high_s),
            percent(slow * self.mfu),
            percent(fast * self.mfu),
            slow * self.tflops_per_gpu,
            fast * self.tflops_per_gpu,
            tokens[0],
            tokens[1],
            interval.why,
        )
    }

    /// The figures that matter.
    fn headline(&self, sheet: Sheet) -> Sheet {
        sheet.facts([
            ("step", span(self.step_s), ""),
            ("MFU", percent(self.mfu), "of the bf16 peak"),
            ("per GPU", format!("{:.0} TFLOP/s", self.tflops_per_gpu), ""),
            ("tokens", format!("{}/s", grouped(self.tokens_per_s as u64)), ""),
            ("exposed communication", percent(self.exposed_communication), "of the step"),
            ("the fabric costs", self.fabric_words(), "of the step"),
            ("goodput", percent(self.goodput), "of a long run"),
            (
                "a million tokens",
                format!("${:.3}", self.cost.usd_per_million_tokens),
                "at assumed prices",
            ),
        ])
    }

    /// Whether its engine knows what the fabric costs.
    pub(crate) fn has_contention(&self) -> bool {
        self.drawn.engine.has_contention()
    }

    fn fabric_words(&self) -> String {
        match self.has_contention() {
            true if self.verdict.fabric_s < 0.0005 * self.step_s => "nothing".to_owned(),
            true => span(self.verdict.fabric_s),
            false => "not told".to_owned(),
        }
    }

    /// What is counted as exposed and as bubble, beside the textbook's bubble.
    fn attribution_words(&self) -> String {
        let mut text =
            "Exposed is communication that no computation of the busiest rank hides.".to_owned();
        let share = self.drawn.textbook_bubble;
        if 0.0 < share {
            text += &format!(
                " Bubble is waiting for another stage's computation; waiting for another stage's \
                 communication counts as that communication. By the textbook, (stages - 1) / \
                 (microbatches × virtual stages), the bubble is {} of the time without it; here \
                 it is {}.",
                percent(share),
                percent(self.breakdown_s.bubble / (self.step_s - self.breakdown_s.bubble)),
            );
        }
        text
    }

    fn waterfall(&self) -> Chart {
        let mut parts = Frame::new(&["part", "seconds"]);
        for (name, seconds) in self.breakdown_s.named() {
            if 0.0 < seconds {
                parts.push(vec![name.into(), seconds.into()]);
            }
        }
        let title =
            format!("Where {} of one step go: {} MFU", span(self.step_s), percent(self.mfu));
        Chart::new(ChartKind::Waterfall, title, parts)
            .caption(
                "Each bar begins where the last one ended; the last end is the step. MFU is the \
                 time that the model's own FLOPs would take at the GPU's bf16 peak, over the step.",
            )
            .axes("seconds", "part")
            .labels("time", "")
            .units(Unit::Seconds, Unit::Number)
            .rule(self.mfu * self.step_s, "model FLOPs at peak")
    }

    fn path_table(&self) -> Table {
        let mut table = Table::new([("", Align::Right), ("", Align::Left)]);
        for segment in &self.critical_path {
            let (from, what) = segment.split_once(": ").unwrap_or(("", segment));
            table.row([from, what]);
        }
        table
    }

    fn phase_table(&self) -> Table {
        let mut table = Table::new([
            ("axis", Align::Left),
            ("groups", Align::Right),
            ("collective", Align::Left),
            ("size", Align::Right),
            ("undisturbed", Align::Right),
            ("slowest", Align::Right),
            ("factor", Align::Right),
        ]);
        for row in &self.phases {
            table.row([
                row.groups_of.to_owned(),
                grouped(row.groups),
                row.collective.to_owned(),
                format!("{:.1}", Bytes::new(row.bytes)),
                span(row.alone_s),
                span(row.slowest_s),
                if row.on_fabric { format!("{:.2}", row.slowdown) } else { "–".to_owned() },
            ]);
        }
        table
    }

    fn links_part(&self, sheet: Sheet) -> Sheet {
        if self.worst_links.is_empty() {
            return sheet.text(
                "No link was run: of contention the closed form knows groups that share a NIC.",
            );
        }
        let mut bars = Frame::new(&["link", "load"]);
        let table =
            || Table::new([("link", Align::Left), ("load", Align::Right), ("why", Align::Left)]);
        let (mut first, mut others) = (table(), table());
        let names = distinct(self.worst_links.iter().map(|worst| worst.link.clone()));
        for (at, (name, worst)) in names.into_iter().zip(&self.worst_links).enumerate() {
            bars.push(vec![name.as_str().into(), worst.utilisation.into()]);
            let why = if at < TOLD_LINKS { &mut first } else { &mut others };
            why.row([name, percent(worst.utilisation), worst.why.clone()]);
        }
        let worst = Chart::new(ChartKind::Bars, "The busiest links of the step", bars)
            .caption("Bytes of the step over what the link could have carried in it.")
            .axes("load", "link")
            .labels("load", "")
            .units(Unit::Share, Unit::Number);
        let mut drawn = Sheet::new();
        if !others.rows.is_empty() {
            drawn = drawn.heading("Other busy links").table(others);
        }
        drawn = drawn.chart(worst);
        if let Some(pictures) = &self.drawn.lanes.pictures {
            drawn = pictures.show(drawn, "All links");
        }
        sheet.heading("Busiest links").table(first).on_page(drawn)
    }

    fn reliability_table(&self) -> Table {
        let run = &self.reliability;
        let hours = |seconds: f64| format!("{} h", significant(seconds / 3600.0));
        let minutes = |seconds: f64| format!("{} min", significant(seconds / 60.0));
        rows([
            ("mean time between failures", hours(run.mtbf_s)),
            ("checkpoint", format!("{:.2}", Bytes::new(run.checkpoint_bytes as u64))),
            ("the job waits for it", span(run.checkpoint_s)),
            ("its burst on the storage network", span(run.burst_s)),
            ("time between checkpoints", minutes(run.interval_s)),
            ("Young's, Daly's interval", {
                format!("{}, {}", minutes(run.young_s), minutes(run.daly_s))
            }),
            ("lost to checkpoints", percent(run.lost_to_checkpoints)),
            ("lost to work done again", percent(run.lost_to_replay)),
            ("lost to detection and restart", percent(run.lost_to_recovery)),
            ("goodput", percent(run.goodput)),
        ])
    }

    fn variants_table(&self) -> Table {
        let mut table = Table::new([
            ("", Align::Left),
            ("goodput", Align::Right),
            ("difference", Align::Right),
        ]);
        for variant in &self.goodput_if {
            let change = 100.0 * (variant.goodput - self.goodput);
            let share = format!("{:.2} %", 100.0 * variant.goodput);
            let words = [share, format!("{change:+.2} points")];
            table.row(std::iter::once(variant.what.to_owned()).chain(words));
        }
        table
    }

    fn money_table(&self) -> Table {
        let bill = &self.cost;
        let joules = |joules: f64| format!("{} kWh", significant(joules / 3.6e6));
        let share = format!(
            "capital of the job's {} of {} GPUs (`fatflow topo`: all of them)",
            grouped(self.gpus),
            grouped(self.drawn.cluster_gpus)
        );
        rows([
            (
                &share,
                with_ends(bill.capital_usd, bill.capital_low_usd, bill.capital_high_usd, dollars),
            ),
            ("of which the network", {
                let share = percent(bill.network_capital_usd / bill.capital_usd);
                let Bill { network_capital_low_usd: low, network_capital_high_usd: high, .. } =
                    *bill;
                let money = with_ends(bill.network_capital_usd, low, high, dollars);
                format!("{money}; {share}")
            }),
            ("mean power, the building's share included", watts(bill.power_w)),
            ("energy of a step: computing", joules(bill.compute_j)),
            ("communicating", joules(bill.communicate_j)),
            ("waiting", joules(bill.idle_j)),
            ("hosts", joules(bill.host_j)),
            ("network", joules(bill.network_j)),
            ("a step", {
                let cents = |usd: f64| format!("${usd:.2}");
                with_ends(bill.step_usd, bill.step_low_usd, bill.step_high_usd, cents)
            }),
            ("a million trained tokens", {
                let Bill {
                    usd_per_million_tokens_low: low, usd_per_million_tokens_high: high, ..
                } = *bill;
                with_ends(bill.usd_per_million_tokens, low, high, |usd| format!("${usd:.3}"))
            }),
        ])
    }
}

fn circuits_part(sheet: Sheet, circuits: &Circuits) -> Sheet {
    let mut plans = Table::new([
        ("circuits between pods", Align::Left),
        ("set anew in a step", Align::Right),
        ("step", Align::Right),
        ("", Align::Left),
    ]);
    for plan in &circuits.plans {
        plans.row([
            plan.plan.to_owned(),
            plan.reconfigurations.to_string(),
            plan.step_s.map_or("some pods are not joined".to_owned(), span),
            if plan.chosen { "chosen" } else { "" }.to_owned(),
        ]);
    }
    let takes = span(circuits.reconfiguration_s);
    let sheet = sheet
        .heading("Optical circuits")
        .text(format!("The circuits follow what the job exchanges; a change takes {takes}."))
        .table(plans);
    if circuits.lit.is_empty() {
        return sheet;
    }
    let mut lit = Table::new([
        ("during", Align::Left),
        ("from pod", Align::Right),
        ("to pod", Align::Right),
        ("circuits", Align::Right),
    ]);
    for row in circuits.lit.iter().take(TOLD_CIRCUITS) {
        let [from, to] = row.pods.map(|pod| pod.to_string());
        lit.row([row.phase.to_owned(), from, to, row.circuits.to_string()]);
    }
    let sheet = sheet.table(lit);
    match circuits.lit.len().saturating_sub(TOLD_CIRCUITS) {
        0 => sheet,
        more => sheet.text(format!("and {more} more pairs of pods (`--json` has all).")),
    }
}

fn memory_table(memory: &Memory) -> Table {
    let gb = |bytes: u64| format!("{:.1} GB", bytes as f64 / 1e9);
    rows([
        ("weights", gb(memory.weights_bytes)),
        ("gradients", gb(memory.gradients_bytes)),
        ("optimizer state", gb(memory.optimizer_bytes)),
        ("activations", gb(memory.activations_bytes)),
        ("logits", gb(memory.logits_bytes)),
        ("framework", gb(memory.framework_bytes)),
        ("in all, on the fullest stage", gb(memory.total_bytes)),
        ("of", gb(memory.capacity_bytes)),
    ])
}

fn rows<const N: usize>(rows: [(&str, String); N]) -> Table {
    let mut table = Table::new([("", Align::Left), ("", Align::Right)]);
    for (name, value) in rows {
        table.row([name.to_owned(), value]);
    }
    table
}
