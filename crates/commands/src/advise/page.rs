//! What people see of an advice.

use report::number::{dollars, grouped};
use report::{Align, Answer, Chart, ChartKind, Frame, Sheet, Table, Unit};
use units::Span;

use super::{Advice, Advised, Goal, Refused, Spares};
use crate::change::Kind;

/// Less than this share is no gain, for it is written as 0.0 %.
const NOTHING: f64 = 5e-4;
/// Changes that are explained with their commands.
const EXPLAINED: usize = 5;

impl Answer for Advice {
    fn sheet(&self) -> Sheet {
        let base = &self.base;
        let seconds = |seconds: f64| format!("{:.3}", Span::from_secs_f64(seconds));
        let mut facts = vec![("step", seconds(base.step_s), "as it is")];
        if 1 < base.seeds.len() {
            facts.push(("mean of all seeds", seconds(base.mean_step_s), "as it is"));
        }
        if 0.0 < base.usd_per_million_tokens {
            facts.push(("goodput", format!("{:.1} %", 100.0 * base.goodput), ""));
            facts.push(("cost", dollars(base.cost_usd), "to buy"));
            let tokens = format!("${:.4}", base.usd_per_million_tokens);
            facts.push(("tokens", tokens, "a million, failures included"));
        }
        let mut sheet = Sheet::new()
            .heading(format!("{}: what to change", self.title))
            .note(self.verdict.clone())
            .facts(facts);
        if let Some(left_out) = self.left_out() {
            sheet = sheet.note(left_out);
        }
        if !self.changes.is_empty() {
            sheet = sheet.heading("What gains").table(table(self)).chart(gains(&self.changes));
            for change in self.changes.iter().take(EXPLAINED) {
                sheet = sheet.heading(change.name.clone());
                let why = sentence(&change.why);
                let risk = match change.risk.as_str() {
                    "" => String::new(),
                    risk => format!("Risk: {risk}."),
                };
                sheet = sheet.text(format!("{why}{risk}")).verbatim(change.command.clone());
            }
        }
        if let Some(layouts) = self.layouts.as_ref().filter(|layouts| 1 < layouts.best.len()) {
            let [mixes, looked, legal, fit, engine] =
                [layouts.mixes, layouts.looked_at, layouts.legal, layouts.fit, layouts.by_engine]
                    .map(|count| grouped(count as u64));
            let text = format!(
                "Of {mixes} mixes {looked} were looked at by closed forms in {:.1} s; {legal} are \
                 legal, {fit} fit memory, and {engine} of the best were asked of the engine.",
                layouts.wall_s
            );
            sheet = sheet.heading("Layouts").text(text).chart(pareto(layouts, Axis::Memory));
            sheet = sheet.chart(pareto(layouts, Axis::Cost));
        }
        if let Some(spares) = &self.spares {
            sheet = spare_servers(sheet, spares);
        }
        self.rest(sheet)
    }

    fn engine(&self) -> Option<&'static str> {
        Some(self.engine.name())
    }
}

/// Changes without time that are named, and how long a name may be.
const NAMED: usize = 8;
const LONG: usize = 40;

impl Advice {
    /// What time has left out: with more of it, or on a faster machine, the advice may be another.
    fn left_out(&self) -> Option<String> {
        let mut left = Vec::new();
        if let Some(layouts) = &self.layouts {
            if 0 < layouts.unseen {
                left.push(format!("{} layouts by closed forms", grouped(layouts.unseen as u64)));
            }
            if 0 < layouts.left {
                left.push(format!("{} layouts on the engine", layouts.left));
            }
        }
        let alone = |change: &&Advised| change.seeds == 1 && change.engine == self.engine.name();
        let alone = self.changes.iter().filter(alone).count();
        if 1 < self.base.seeds.len() && 0 < alone {
            left.push(format!("other seeds than the scenario's own of {alone} changes"));
        }
        if !self.left.is_empty() {
            // Layouts have long names, and are counted above.
            let short = self.left.iter().filter(|name| name.len() < LONG);
            let named: Vec<&str> = short.take(NAMED).map(String::as_str).collect();
            let more = if named.len() < self.left.len() { " …: --json has all" } else { "" };
            left.push(format!("{} changes ({}{more})", self.left.len(), named.join("; ")));
        }
        (!left.is_empty()).then(|| {
            format!(
                "Not everything was tried in {:.1} s, for at most {:.3} are given, a part of them \
                 to layouts: more time (fatflow advise --budget) or a faster machine may advise \
                 otherwise. Left out: {}.",
                self.wall_s,
                Span::from_secs_f64(self.budget_s),
                left.join(", ")
            )
        })
    }

    /// What was tried besides.
    fn rest(&self, mut sheet: Sheet) -> Sheet {
        let seeds = self.base.seeds.len();
        sheet = sheet.heading("Tried").text(format!(
            "{} changes in {} runs on the {} engine, the best with {seeds} {}, in {:.1} s. The \
             interval is that of one more seed; what the model is off by stands apart.",
            self.tried,
            self.runs,
            self.engine.name(),
            if seeds == 1 { "seed" } else { "seeds" },
            self.wall_s
        ));
        if !self.without_gain.is_empty() {
            sheet = sheet.text(format!("Without gain: {}.", self.without_gain.join("; ")));
        }
        if !self.unconfirmed.is_empty() {
            let names = self.unconfirmed.join("; ");
            sheet = sheet.text(format!("With the scenario's own seed alone: {names}."));
        }
        if !self.refused.is_empty() {
            let mut whys: Vec<(&str, Vec<&str>)> = Vec::new();
            for Refused { name, why } in &self.refused {
                match whys.iter_mut().find(|(known, _)| known == why) {
                    Some((_, names)) => names.push(name),
                    None => whys.push((why, vec![name])),
                }
            }
            for (why, names) in whys {
                sheet = sheet.text(format!("Not tried: {} ({why}).", names.join("; ")));
            }
        }
        sheet
    }
}

/// What spare servers bring.
fn spare_servers(sheet: Sheet, spares: &Spares) -> Sheet {
    let Spares { now, enough, goodput, command } = spares;
    let mut table =
        Table::new([("spare servers", Align::Right), ("of 30 days train", Align::Right)]);
    for (number, share) in goodput {
        table.row([number.to_string(), format!("{:.2} %", 100.0 * share)]);
    }
    let text = match enough.cmp(now) {
        std::cmp::Ordering::Equal => format!("{now} spare servers, as there are, are enough."),
        _ if *enough == 1 => format!("One spare server is enough; the scenario has {now}."),
        _ => format!("{enough} spare servers are enough; the scenario has {now}."),
    };
    sheet.heading("Spares").text(text).table(table).verbatim(command.clone())
}

/// What somebody would tell a colleague.
pub(super) fn verdict(advice: &Advice) -> String {
    let what = match advice.goal {
        Goal::Step => "the step",
        Goal::Goodput => "the time of a trained step",
        Goal::Cost => "what a token costs",
    };
    if let Some(within) = advice.within {
        return match advice.changes.first() {
            Some(first) => format!(
                "The cheapest fabric that loses at most {:.1} % is {}: {} in place of {} to buy, \
                 and the step changes by {:+.1} %.",
                100.0 * within,
                first.name,
                dollars(first.cost_usd),
                dollars(advice.base.cost_usd),
                -100.0 * first.gain
            ),
            None => "No cheaper fabric was found that loses so little.".to_owned(),
        };
    }
    let Some(first) = advice.changes.first() else {
        return format!("Nothing that was tried shortens {what}.");
    };
    if first.gain.abs() < NOTHING {
        let name = &first.name;
        return format!("Nothing that was tried shortens {what} by 0.05 %; the best is {name}.");
    }
    let (low, high) = (100.0 * first.low, 100.0 * first.high);
    let seeds = match low < high {
        true => format!(" ({low:.1} to {high:.1} % with eight of ten other seeds)"),
        false => String::new(),
    };
    let mut text = format!(
        "{} {what} by {:.1} %{seeds}: {}.",
        if first.gain < 0.0 { "The best lengthens" } else { "The best change shortens" },
        100.0 * first.gain.abs(),
        first.name,
    );
    let single = advice.changes.iter().find(|change| change.kind != Kind::Combined);
    if let Some(single) = single.filter(|single| single.name != first.name) {
        text += &format!(" Alone the most is {} ({:.1} %).", single.name, 100.0 * single.gain);
    }
    if first.gain < first.model_error {
        text += " That is within the model's error.";
    }
    text
}

fn table(advice: &Advice) -> Table {
    let mut table = Table::new([
        ("change", Align::Left),
        ("kind", Align::Left),
        ("this seed's step", Align::Right),
        ("mean gain", Align::Right),
        ("80 % of seeds", Align::Right),
        ("model ±", Align::Right),
        ("to buy", Align::Right),
    ]);
    for change in &advice.changes {
        let more = change.cost_usd - advice.base.cost_usd;
        let cost = match more {
            0.0 => "as it is".to_owned(),
            more if more < 0.0 => format!("-{}", dollars(-more)),
            more => format!("+{}", dollars(more)),
        };
        table.row([
            change.name.clone(),
            change.kind.word().to_owned(),
            format!("{:.3}", Span::from_secs_f64(change.step_s)),
            format!("{} %", signed(change.gain)),
            format!("{} to {} %", signed(change.low), signed(change.high)),
            format!("{:.1} %", 100.0 * change.model_error),
            cost,
        ]);
    }
    table
}

/// A share in per cent; what is nothing has no sign.
fn signed(share: f64) -> String {
    if share.abs() < NOTHING { "0.0".to_owned() } else { format!("{:+.1}", 100.0 * share) }
}

fn gains(changes: &[Advised]) -> Chart {
    let mut frame = Frame::new(&["change", "gain"]);
    for change in changes.iter().take(20) {
        frame.push(vec![change.name.clone().into(), change.gain.into()]);
    }
    Chart::new(ChartKind::Bars, "What each gains", frame)
        .axes("gain", "change")
        .labels("share gained", "")
        .units(Unit::Share, Unit::Number)
}

/// What stands beside the step of a layout.
#[derive(Clone, Copy)]
enum Axis {
    Memory,
    Cost,
}

/// Step, and memory or cost, of the layouts; those that no other beats in all three stand apart.
fn pareto(layouts: &super::Layouts, axis: Axis) -> Chart {
    let (word, title, label, unit) = match axis {
        Axis::Memory => {
            ("memory", "Step and memory of the layouts", "share of a GPU's memory", Unit::Share)
        }
        Axis::Cost => {
            ("cost", "Step and cost of the layouts", "$ for a million tokens", Unit::Number)
        }
    };
    let mut frame = Frame::new(&[word, "step", "which"]);
    for one in &layouts.best {
        let which = if one.front { "no other beats it in all three" } else { "others" };
        let at = match axis {
            Axis::Memory => one.memory,
            Axis::Cost => one.usd_per_million_tokens,
        };
        frame.push(vec![at.into(), one.step_s.into(), which.into()]);
    }
    Chart::new(ChartKind::Scatter, title, frame)
        .axes(word, "step")
        .by("which")
        .labels(label, "step by closed forms")
        .units(unit, Unit::Seconds)
        .log_y()
}

/// A reason as a sentence of its own.
fn sentence(why: &str) -> String {
    let mut letters = why.chars();
    match letters.next() {
        Some(first) => format!("{}{}. ", first.to_uppercase(), letters.as_str()),
        None => String::new(),
    }
}
