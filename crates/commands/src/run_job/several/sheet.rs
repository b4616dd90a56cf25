//! What people see of several jobs on one fabric.

use report::number::grouped;
use report::{Align, Chart, ChartKind, Frame, Sheet, Table, Unit};
use units::Span;

use super::{JobRow, Report, SlowedBy};

fn span(seconds: f64) -> String {
    format!("{:.3}", Span::from_secs_f64(seconds))
}

pub(super) fn sheet(report: &Report) -> Sheet {
    let title = format!(
        "{}: {} on one fabric, {} engine",
        report.title,
        if report.jobs.len() == 1 {
            "a job".to_owned()
        } else {
            format!("{} jobs", report.jobs.len())
        },
        report.engine.name()
    );
    let mut sheet = Sheet::new().heading(title).text(verdict(report)).table(jobs(report));
    for job in &report.jobs {
        let servers = match job.nodes.as_str() {
            "" => String::new(),
            nodes => format!(" Servers {nodes}."),
        };
        sheet = sheet.text(format!("{}: {}.{servers}", job.name, job.words));
    }
    sheet = sheet.chart(bars(report));
    sheet = match meetings(report) {
        None => sheet.note("No two of them use the same link."),
        Some(met) => sheet.heading("Who slows whom, and where they meet").table(met),
    };
    if report.jobs.iter().any(|job| job.gpus == 0) {
        let words = format!("From the first start until all are over: {}.", span(report.all_s));
        sheet = sheet.text(words);
    }
    if let Some(seeds) = &report.seeds {
        sheet = seeds.show(sheet);
    }
    for finding in &report.findings {
        sheet = sheet.note(finding);
    }
    sheet.text(format!(
        "Whole: {} operations on one clock. A job whose step is shorter repeats it as long as the \
         longest needs. Without somebody, everybody else stays.",
        grouped(report.operations)
    ))
}

fn verdict(report: &Report) -> String {
    let worst = report.jobs.iter().max_by(|a, b| a.slowdown.total_cmp(&b.slowdown));
    let most = worst.map_or(1.0, |job| job.slowdown);
    let is_tie = 1 < report.jobs.iter().filter(|job| most - job.slowdown < 5e-4).count();
    match worst {
        Some(JobRow { name, slowdown, alone_s, step_s, .. }) if 1.0005 < *slowdown => format!(
            "Sharing costs `{name}` {}: its step takes {} beside the others and {} alone, {:.1} % \
             more.",
            if is_tie { "as much as any" } else { "most" },
            span(*step_s),
            span(*alone_s),
            100.0 * (slowdown - 1.0)
        ),
        _ => "No job slows another by more than 0.05 %.".to_owned(),
    }
}

fn jobs(report: &Report) -> Table {
    let mut table = Table::new([
        ("job", Align::Left),
        ("GPUs", Align::Right),
        ("start", Align::Right),
        ("step", Align::Right),
        ("alone", Align::Right),
        ("slowdown", Align::Right),
        ("steps", Align::Right),
        ("longest", Align::Right),
        ("variation", Align::Right),
    ]);
    for job in &report.jobs {
        table.row([
            job.name.clone(),
            grouped(job.gpus),
            if job.start_s == 0.0 { "0 s".to_owned() } else { span(job.start_s) },
            span(job.step_s),
            span(job.alone_s),
            format!("{:.3}", job.slowdown),
            job.steps.n.to_string(),
            span(job.steps.max_s),
            format!("{:.2} %", 100.0 * job.steps.cv),
        ]);
    }
    if let Some(traffic) = &report.traffic {
        let none = String::new;
        table.row([
            "traffic".to_owned(),
            none(),
            none(),
            span(traffic.makespan_s),
            span(traffic.alone_s),
            format!("{:.3}", traffic.slowdown),
            none(),
            none(),
            none(),
        ]);
    }
    table
}

fn bars(report: &Report) -> Chart {
    let mut frame = Frame::new(&["job", "way", "step_s"]);
    for job in &report.jobs {
        for (way, step) in [("alone", job.alone_s), ("shared", job.step_s)] {
            let name = format!("{}, {way}", job.name);
            frame.push(vec![name.as_str().into(), way.into(), step.into()]);
        }
    }
    Chart::new(ChartKind::Bars, "A step alone and beside the others", frame)
        .axes("step_s", "job")
        .labels("step", "")
        .units(Unit::Seconds, Unit::Number)
        .by("way")
}

/// Who slows whom; nothing if no two of them meet.
fn meetings(report: &Report) -> Option<Table> {
    let of_jobs = report.jobs.iter().map(|job| (job.name.as_str(), &job.slowed_by));
    let of_traffic = report.traffic.iter().map(|traffic| ("traffic", &traffic.slowed_by));
    let all: Vec<(&str, &Vec<SlowedBy>)> = of_jobs.chain(of_traffic).collect();
    if all.iter().all(|(_, slowed_by)| slowed_by.is_empty()) {
        return None;
    }
    let mut table = Table::new([
        ("who", Align::Left),
        ("slowed by", Align::Left),
        ("costs", Align::Right),
        ("links that both use, the most first", Align::Left),
    ]);
    for (who, slowed_by) in all {
        for SlowedBy { by, seconds, links } in slowed_by {
            table.row([who.to_owned(), by.clone(), span(seconds.max(0.0)), links.join(", ")]);
        }
    }
    Some(table)
}
