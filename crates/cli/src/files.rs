//! The files that `run` writes for other tools besides its answer.

use std::path::PathBuf;

use commands::Failure;
use commands::files::capture::{USUAL_LIMIT, Wanted};
use commands::files::film::{Film, Reel};
use commands::files::{Links, RequestedFile, flows, metrics, perfetto, profile};
use commands::files::{refuse_one_for_two, save, save_bytes, save_table, series_of_step};
use commands::run_traffic::Report;
use commands::work::Work;
use commands::world::JobWorld;
use exports::openmetrics::Clock;
use scenario::Loaded;
use step::predict::Prediction;
use traffic::Outcome;
use units::Bytes;

/// Files for other tools
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Files for other tools")]
pub(crate) struct FileArguments {
    /// Write what became of each flow, as Parquet if the name ends so
    #[arg(long, value_name = "FILE.csv|.parquet")]
    flows_out: Option<PathBuf>,
    /// Write what each link carried, as Parquet if the name ends so
    #[arg(long, value_name = "FILE.csv|.parquet")]
    links_out: Option<PathBuf>,
    /// Write what links did over time, as Parquet if the name ends so; synthetic traffic needs
    /// --series too
    #[arg(long, value_name = "FILE.csv|.parquet")]
    series_out: Option<PathBuf>,
    /// Write the fabric with the load, queue and pauses of its links over time, for the picture of
    /// `fatflow serve`; closed forms and several jobs have none
    #[arg(long, value_name = "FILE.json", conflicts_with = "series")]
    fabric_out: Option<PathBuf>,
    /// Write a trace for ui.perfetto.dev: ranks, NICs, links, and arrows for messages
    #[arg(long, value_name = "FILE.pftrace")]
    perfetto: Option<PathBuf>,
    /// Write what PyTorch's profiler would record of some steps, a file for one rank of each server
    #[arg(long, value_name = "FOLDER")]
    profile: Option<PathBuf>,
    /// How many steps that are
    #[arg(long, value_name = "N", requires = "profile", default_value_t = 16)]
    profile_steps: u32,
    /// How much their exchanges vary from step to step, as a share
    #[arg(long, value_name = "SHARE", requires = "profile", default_value_t = 0.0)]
    profile_noise: f64,
    /// Write what ports count under the names of node_exporter, mlx5 and SONiC
    #[arg(long, value_name = "FILE.om")]
    openmetrics: Option<PathBuf>,
    /// When the first OpenMetrics sample is, in seconds since 1970 [default: the start of 2026]
    #[arg(long, value_name = "SECONDS", requires = "openmetrics")]
    openmetrics_start: Option<u64>,
    /// Write the packets that the packet engine moves as RoCEv2, each where its way ended; of a job
    /// those of its phases, one behind the other, as far as they are run
    #[arg(long, value_name = "FILE.pcapng")]
    pcap: Option<PathBuf>,
    /// The longest that file may be: what comes later is left out, and the answer says so
    #[arg(long, value_name = "BYTES", requires = "pcap", default_value_t = USUAL_LIMIT)]
    pcap_limit: Bytes,
}

impl FileArguments {
    /// All files that can be asked for.
    fn asked(&self) -> [RequestedFile<'_>; 8] {
        [
            ("--flows-out", self.flows_out.as_ref()),
            ("--links-out", self.links_out.as_ref()),
            ("--series-out", self.series_out.as_ref()),
            ("--fabric-out", self.fabric_out.as_ref()),
            ("--perfetto", self.perfetto.as_ref()),
            ("--openmetrics", self.openmetrics.as_ref()),
            ("--pcap", self.pcap.as_ref()),
            ("--profile", self.profile.as_ref()),
        ]
    }

    /// The capture that is wanted.
    pub(crate) fn capture(&self) -> Option<Wanted> {
        let limit = self.pcap_limit;
        self.pcap.clone().map(|path| Wanted { path, limit })
    }

    /// Every file has its own name, the page among them.
    pub(crate) fn refuse_one_for_two(&self, page: Option<&PathBuf>) -> Result<(), Failure> {
        refuse_one_for_two(&[&self.asked()[..], &[("--report", page)]].concat())
    }

    /// A job has no flows of its own.
    pub(crate) fn refuse_flows(&self) -> Result<(), Failure> {
        if self.flows_out.is_none() {
            return Ok(());
        }
        let reason =
            "--flows-out is for synthetic traffic; a job has `fatflow traffic --transfers-out`";
        Err(Failure::Usage(reason.to_owned()))
    }

    /// The closed forms of a job put nothing on links.
    pub(crate) fn refuse_links(&self) -> Result<(), Failure> {
        let [_, links, series, _, _, metrics, _, _] = self.asked();
        match [links, series, metrics].iter().find(|(_, file)| file.is_some()) {
            None => Ok(()),
            Some((flag, _)) => Err(Failure::Usage(format!(
                "{flag} writes what links carry, which the closed forms of a job do not say: use \
                 `--engine flow` or `--engine packet`"
            ))),
        }
    }

    /// Files are of one run.
    pub(crate) fn refuse_several_engines(&self) -> Result<(), Failure> {
        if self.asked().iter().all(|(_, file)| file.is_none()) {
            return Ok(());
        }
        let reason = "files are written of one run: choose one engine instead of `all`";
        Err(Failure::Usage(reason.to_owned()))
    }

    /// Files are of one job.
    pub(crate) fn refuse_several_jobs(&self) -> Result<(), Failure> {
        let is_film = |flag: &str| flag == "--fabric-out";
        let asked = self.asked();
        match asked.iter().find(|(flag, file)| file.is_some() && !is_film(flag)) {
            None => Ok(()),
            Some((flag, _)) => {
                Err(Failure::Usage(format!("{flag} writes one job, and these are several")))
            }
        }
    }

    /// Writes what was asked for of a step.
    pub(crate) fn of_step(
        &self,
        loaded: &Loaded,
        world: &JobWorld<'_>,
        prediction: &Prediction,
    ) -> Result<(), Failure> {
        if let Some(folder) = self.profile.clone() {
            let (steps, noise) = (self.profile_steps, self.profile_noise);
            let wanted = profile::Wanted { folder, steps, noise };
            profile::write(world, prediction, loaded, &wanted)?;
        }
        if let Some(path) = &self.series_out {
            save_table(path, &series_of_step(world, prediction))?;
        }
        if let Some(path) = &self.perfetto {
            save(path, |out| perfetto::write_step(world, prediction, out))?;
        }
        let links = Links::of_step(world, prediction);
        let has_links = prediction.phases.iter().any(|phase| !phase.links.is_empty());
        if let Some(path) = self.fabric_out.as_ref().filter(|_| has_links) {
            save_film(path, &Film::of(&links, &Reel::of_step(world, prediction)))?;
        }
        self.of_links(&links)
    }

    /// Writes what was asked for of synthetic traffic.
    pub(crate) fn of_run(
        &self,
        loaded: &Loaded,
        (report, work, outcome): (&Report, &Work, &Outcome),
    ) -> Result<(), Failure> {
        if self.profile.is_some() {
            let reason = "--profile records the steps of a job, and synthetic traffic has none";
            return Err(Failure::Usage(reason.to_owned()));
        }
        if let Some(path) = &self.series_out {
            let series = report.series.as_ref().ok_or_else(|| {
                let reason = "--series-out writes what --series INTERVAL measures";
                Failure::Usage(reason.to_owned())
            })?;
            save_table(path, &series.table())?;
        }
        if let Some(path) = &self.flows_out {
            save_table(path, &flows(work, outcome))?;
        }
        let links = Links::of_run(loaded.fabric(), outcome);
        if let (Some(path), Some(reel)) = (&self.fabric_out, report.reel()) {
            save_film(path, &Film::of(&links, reel))?;
        }
        if let Some(path) = &self.perfetto {
            perfetto::refuse_too_many(&work.transfers)?;
            save(path, |out| perfetto::write_run(&links, &work.transfers, outcome, out))?;
        }
        self.of_links(&links)
    }

    /// Whether somebody wants the fabric over time.
    pub(crate) fn wants_film(&self) -> bool {
        self.fabric_out.is_some()
    }

    fn of_links(&self, links: &Links<'_>) -> Result<(), Failure> {
        if let Some(path) = &self.links_out {
            save_table(path, &links.table())?;
        }
        if let Some(path) = &self.openmetrics {
            let clock = self.openmetrics_start.map_or_else(Clock::default, Clock::from);
            save(path, |out| metrics::write(links, clock, out))?;
        }
        Ok(())
    }
}

fn save_film(path: &std::path::Path, film: &Film) -> Result<(), Failure> {
    let text = serde_json::to_vec(film).map_err(|error| Failure::Run(error.to_string()))?;
    save_bytes(path, &text)
}
