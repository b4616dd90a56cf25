//! `topo --domains`: what one failure of each kind of part stops, and what it leaves.

use fabric::domains::{self, Domain, DomainQuery, PartKind};
use report::number::{grouped, significant};
use report::{Align, Chart, ChartKind, Frame, Sheet, Table, Unit};
use scenario::Loaded;
use serde::Serialize;
use step::faults::Cause;
use step::parts::Shares;

use super::percent;
use crate::failure::Failure;
use crate::world;

/// The failure domains of a back-end.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Domains {
    /// GPUs of the job; all of the cluster's where the scenario has none.
    pub job_gpus: u64,
    /// Servers that were taken for a rack.
    pub rack_servers: u64,
    /// Every kind of part, from cables to racks, and software.
    pub rows: Vec<DomainRow>,
    #[serde(skip)]
    has_job: bool,
}

/// One kind of part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DomainRow {
    /// What it is: `cable`, `fibre`, `transceiver`, `NIC`, `switch`, `plane`, `server`, `rack`,
    /// `software`.
    pub part: &'static str,
    /// Where: a kind of cable, a tier.
    pub place: String,
    /// How many there are.
    pub count: u64,
    /// The most GPUs that one failure stops.
    pub gpus_stopped: u64,
    /// Jobs that it stops: the scenario's, or none.
    pub jobs_stopped: u64,
    /// How many of the parts stop the job when they fail.
    pub stop_the_job: u64,
    /// What the NIC or switch that is hit worst can still carry, as a share.
    pub bandwidth_left: f64,
    /// Bisection of the back-end over what it was.
    pub bisection_left: f64,
    /// Shortest ways from a NIC that is hit to another, before the failure.
    pub paths: u64,
    /// The same after it.
    pub paths_left: u64,
    /// Failures of all of them in a year; nothing where no rate is published.
    pub failures_per_year: Option<f64>,
    /// Their share of the time that failures cost the job; nothing where no rate is published.
    pub lost_share: Option<f64>,
    /// Where the rate comes from.
    pub source: &'static str,
    /// How many unlike parts were looked at; the others were taken to be like them.
    pub looked_at: u64,
}

const fn word(part: PartKind) -> &'static str {
    match part {
        PartKind::Cable => "cable",
        PartKind::Fibre => "fibre",
        PartKind::Transceiver => "transceiver",
        PartKind::Nic => "NIC",
        PartKind::Switch => "switch",
        PartKind::Plane => "plane",
        PartKind::Server => "server",
        PartKind::Rack => "rack",
    }
}

impl Domains {
    /// Those of a scenario, with its job where it places it; racks of so many servers, or of as
    /// many as the fabric suggests.
    pub(super) fn of(loaded: &Loaded, rack_servers: Option<u32>) -> Result<Self, Failure> {
        let (fabric, scenario) = (loaded.fabric(), &loaded.scenario);
        let job: Vec<u32> = match (&loaded.job, &scenario.job) {
            (Some(job), Some(config)) => {
                world::placement(loaded, &job.layout, &config.placement)?.gpus().to_vec()
            }
            _ => (0..fabric.gpus() as u32).collect(),
        };
        let rack_servers = rack_servers.map_or_else(|| domains::usual_rack(fabric), |n| n as usize);
        let asked = DomainQuery { catalogue: &scenario.catalogue, job: &job, rack_servers };
        let found = domains::domains(fabric, asked);
        let shares = Shares {
            gpus_per_nic: fabric.gpus() as f64 / fabric.nics().max(1) as f64,
            gpus_per_server: fabric.gpus_per_node() as f64,
        };
        let rate = |part| scenario.reliability.part_rate(part, shares);
        let software = scenario.reliability.per_gpu_year(&[Cause::Software]) * job.len() as f64;
        let stops = |domain: &Domain| {
            rate(domain.part).per_year.unwrap_or(0.0) * domain.stop_the_job as f64
        };
        let all = software + found.iter().map(stops).sum::<f64>();
        let share = |failures: f64| if 0.0 < all { failures / all } else { 0.0 };
        let mut rows: Vec<DomainRow> = found
            .iter()
            .map(|domain| {
                let found = rate(domain.part);
                DomainRow {
                    part: word(domain.part),
                    place: domain.place.clone(),
                    count: domain.count,
                    gpus_stopped: domain.gpus_stopped,
                    jobs_stopped: u64::from(0 < domain.stop_the_job),
                    stop_the_job: domain.stop_the_job,
                    bandwidth_left: domain.bandwidth_left,
                    bisection_left: domain.bisection_left,
                    paths: domain.paths,
                    paths_left: domain.paths_left,
                    failures_per_year: found.per_year.map(|each| each * domain.count as f64),
                    lost_share: found.per_year.map(|_| share(stops(domain))),
                    source: found.source,
                    looked_at: domain.looked_at,
                }
            })
            .collect();
        rows.push(of_software(job.len() as u64, software, share(software)));
        let (job_gpus, rack_servers) = (job.len() as u64, rack_servers as u64);
        Ok(Self { job_gpus, rack_servers, rows, has_job: loaded.job.is_some() })
    }

    /// What people see of it.
    pub(super) fn show(&self, sheet: Sheet) -> Sheet {
        let gpus = grouped(self.job_gpus);
        let whose = match self.has_job {
            true => format!("the job's {gpus} GPUs"),
            false => format!("a job on all {gpus} GPUs, for the scenario has none"),
        };
        let racks = grouped(self.rack_servers);
        sheet
            .heading("Failure domains")
            .text(format!(
                "What one failure stops and leaves, of {whose}; racks here \
                 are {racks} servers (--rack-servers; a leaf's unless told). Left are \
                 bandwidth of the NIC or switch that is hit worst, bisection of the back-end, and \
                 shortest paths from a NIC that is hit; then failures of all in a year, and their \
                 share of the lost time."
            ))
            .table(self.table())
            .chart(self.chart())
            .text(
                "Shares of the lost time are shares of the failures that stop the job: each costs \
                 the same detection, restart and work done again. A failure that stops nobody \
                 costs bandwidth until it is repaired, which is not in the share; \
                 `run --set fabric.failed=[…]` says what. Rates of servers, NICs and software are \
                 the scenario's (Llama 3's table 5 by default); its rate of the network is shared \
                 out over parts as Alibaba HPN (links) and Singh et al. (switches) count them. Of \
                 planes and racks nobody has published a rate. The front-end is not looked at.",
            )
    }

    fn table(&self) -> Table {
        let mut table = Table::new([
            ("part", Align::Left),
            ("where", Align::Left),
            ("count", Align::Right),
            ("GPUs stopped", Align::Right),
            ("stop job", Align::Right),
            ("bandwidth", Align::Right),
            ("bisection", Align::Right),
            ("paths", Align::Right),
            ("a year", Align::Right),
            ("lost time", Align::Right),
        ]);
        for row in &self.rows {
            let is_part = row.part != SOFTWARE;
            let dash = || "–".to_owned();
            let of_part = |text: String| if is_part { text } else { dash() };
            table.row([
                row.part.to_owned(),
                row.place.clone(),
                of_part(grouped(row.count)),
                grouped(row.gpus_stopped),
                of_part(grouped(row.stop_the_job)),
                of_part(percent(row.bandwidth_left)),
                of_part(percent(row.bisection_left)),
                of_part(format!("{} of {}", grouped(row.paths_left), grouped(row.paths))),
                row.failures_per_year.map_or_else(dash, significant),
                row.lost_share.map_or_else(dash, |share| format!("{:.1} %", 100.0 * share)),
            ]);
        }
        table
    }

    fn chart(&self) -> Chart {
        let mut frame = Frame::new(&["part", "share"]);
        for row in &self.rows {
            if let Some(share) = row.lost_share.filter(|share| 0.0 < *share) {
                let name = match row.place.as_str() {
                    "" => row.part.to_owned(),
                    place => format!("{}, {place}", row.part),
                };
                frame.push(vec![name.into(), share.into()]);
            }
        }
        Chart::new(ChartKind::Bars, "Whose failures take the time", frame)
            .caption("Failures that stop the job, by the part that fails.")
            .axes("share", "part")
            .labels("share of the lost time", "")
            .units(Unit::Share, Unit::Number)
    }
}

const SOFTWARE: &str = "software";

/// The row of what is no part.
fn of_software(job_gpus: u64, failures_per_year: f64, lost_share: f64) -> DomainRow {
    DomainRow {
        part: SOFTWARE,
        place: String::new(),
        count: 0,
        gpus_stopped: job_gpus,
        jobs_stopped: 1,
        stop_the_job: 0,
        bandwidth_left: 1.0,
        bisection_left: 1.0,
        paths: 0,
        paths_left: 0,
        failures_per_year: Some(failures_per_year),
        lost_share: Some(lost_share),
        source: "reliability.rates of software",
        looked_at: 0,
    }
}
