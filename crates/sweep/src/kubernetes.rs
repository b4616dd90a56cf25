//! A sweep as an indexed Job of Kubernetes: the same shards, over a volume that all pods share.

use commands::Failure;

use crate::outlook::Outlook;
use crate::share;

/// How somebody wants the Job.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// Its name; one made of the plan if nobody says.
    pub name: Option<String>,
    /// The image, with `fatflow` on its path; [`USUAL`] if nobody says.
    pub image: Option<String>,
    /// The claim of a volume that many nodes can write (ReadWriteMany); [`USUAL`] if nobody says.
    pub volume_claim: Option<String>,
    /// How many shards: the Job's completions; by estimate if nobody says.
    pub shards: Option<u32>,
    /// How many pods run at the same time at most; all if nobody says.
    pub parallelism: Option<u32>,
    /// How often a shard is tried again.
    pub retries: u32,
    /// Cores of a pod.
    pub cpus: u16,
    /// Flags that say what the cases are.
    pub flags: Vec<String>,
    /// Variables that do.
    pub environment: Vec<(String, String)>,
}

/// The image and the claim if nobody says.
const USUAL: &str = "fatflow";

/// Bytes that a ConfigMap may hold.
const LARGEST_GRID: usize = 1 << 20;
/// Pods that an indexed Job may have.
const MOST_SHARDS: u32 = 100_000;

impl Manifest {
    /// The manifest as YAML, or what Kubernetes would not take.
    pub fn yaml(&self, grid: &str, outlook: &Outlook) -> Result<String, Failure> {
        let own = format!("fatflow-{}", outlook.plan.head.plan);
        let name = self.name.as_deref().unwrap_or(&own);
        let (image, claim) = (self.image(), self.volume_claim());
        for (flag, name) in [("--name", name), ("--volume-claim", claim)] {
            if !is_name(name) {
                return Err(Failure::Usage(format!(
                    "{flag} {name}: a name in Kubernetes has at most 63 lower-case letters, \
                     digits and `-`, and begins and ends with a letter or digit"
                )));
            }
        }
        if image.is_empty() || image.contains(char::is_whitespace) {
            return Err(Failure::Usage(format!("--image {image}: this is no image")));
        }
        if LARGEST_GRID < grid.len() {
            return Err(Failure::Run(
                "the grid is larger than the 1 MiB that a ConfigMap may hold".to_owned(),
            ));
        }
        let shards = self.shards.unwrap_or_else(|| share::shards(outlook, MOST_SHARDS));
        if MOST_SHARDS < shards {
            return Err(Failure::Usage(format!(
                "--shards {shards}: an indexed Job has at most {MOST_SHARDS} pods"
            )));
        }
        let memory = share::memory(outlook).div_ceil(1 << 20);
        let assumed = self.assumed().into_iter().map(|line| format!("# {line}\n"));
        let assumed: String = assumed.collect();
        Ok(assumed + &config_map(name, grid) + "---\n" + &self.job(name, shards, memory))
    }

    fn image(&self) -> &str {
        self.image.as_deref().unwrap_or(USUAL)
    }

    fn volume_claim(&self) -> &str {
        self.volume_claim.as_deref().unwrap_or(USUAL)
    }

    /// What nobody has said and is taken to be so, in words.
    pub fn assumed(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut say = |is_assumed: bool, flag: &str, what: &str| {
            if is_assumed {
                lines.push(format!("no {flag} was given: {what} is taken to be `{USUAL}`"));
            }
        };
        say(self.image.is_none(), "--image", "the image, with fatflow on its path,");
        say(
            self.volume_claim.is_none(),
            "--volume-claim",
            "the claim of the volume that all pods write to (ReadWriteMany)",
        );
        lines
    }

    /// What a pod runs.
    fn arguments(&self, name: &str, shards: u32) -> String {
        let own = [
            "sweep",
            "exec",
            "--shard",
            &format!("$(JOB_COMPLETION_INDEX)/{shards}"),
            "--threads",
            &self.cpus.to_string(),
            "--out",
            &format!("/sweep/{name}"),
            "/grid/grid.toml",
        ]
        .map(str::to_owned);
        let all = own.iter().chain(&self.flags);
        all.map(|word| format!("            - {}\n", text(word))).collect()
    }

    fn variables(&self) -> String {
        let variable = |(name, value): &(String, String)| {
            let (name, value) = (text(name), text(value));
            format!("            - name: {name}\n              value: {value}\n")
        };
        let all: String = self.environment.iter().map(variable).collect();
        if all.is_empty() { all } else { format!("          env:\n{all}") }
    }

    fn job(&self, name: &str, shards: u32, memory: u64) -> String {
        let Self { retries, cpus, .. } = self;
        let parallelism = self.parallelism.unwrap_or(shards).min(shards);
        let (image, claim) = (text(self.image()), text(self.volume_claim()));
        let (arguments, variables) = (self.arguments(name, shards), self.variables());
        format!(
            "\
apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
  labels:
    app.kubernetes.io/name: fatflow
spec:
  completionMode: Indexed
  completions: {shards}
  parallelism: {parallelism}
  backoffLimitPerIndex: {retries}
  podFailurePolicy:
    rules:
      # Wrong usage or invalid input: it would be the same again.
      - action: FailIndex
        onExitCodes:
          containerName: sweep
          operator: In
          values: [2, 3]
      # Preempted, evicted or drained: not its fault, and not counted.
      - action: Ignore
        onPodConditions:
          - type: DisruptionTarget
            status: \"True\"
  template:
    metadata:
      labels:
        app.kubernetes.io/name: fatflow
    spec:
      restartPolicy: Never
      automountServiceAccountToken: false
      containers:
        - name: sweep
          image: {image}
          command: [\"fatflow\"]
          args:
{arguments}{variables}          resources:
            requests:
              cpu: \"{cpus}\"
              memory: {memory}Mi
            limits:
              memory: {memory}Mi
          volumeMounts:
            - name: sweep
              mountPath: /sweep
            - name: grid
              mountPath: /grid
              readOnly: true
      volumes:
        - name: sweep
          persistentVolumeClaim:
            claimName: {claim}
        - name: grid
          configMap:
            name: {name}
"
        )
    }
}

/// The grid, for the pods to read.
fn config_map(name: &str, grid: &str) -> String {
    let grid = block(grid);
    format!(
        "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: {name}
data:
  grid.toml: {grid}
"
    )
}

/// Lines of text as the value of a key that is indented by two.
fn block(lines: &str) -> String {
    let is_plain = |letter: char| !letter.is_control() || matches!(letter, '\n' | '\t');
    if !lines.ends_with('\n') || lines.ends_with("\n\n") || !lines.chars().all(is_plain) {
        return text(lines);
    }
    let lines = lines.lines().map(|line| match line {
        "" => String::new(),
        _ => format!("    {line}"),
    });
    format!("|2\n{}", lines.collect::<Vec<_>>().join("\n"))
}

/// Text as YAML takes it: a string of JSON is one of YAML.
fn text(value: &str) -> String {
    serde_json::Value::from(value).to_string()
}

fn is_name(name: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let fits = (1..=63).contains(&name.len());
    let inside = name.chars().all(|letter| is_letter(letter) || letter == '-');
    fits && inside && name.starts_with(is_letter) && name.ends_with(is_letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_kubernetes() {
        for good in ["a", "sweep-1", "0a"] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a_b", "a.b", &"a".repeat(64)] {
            assert!(!is_name(bad), "{bad}");
        }
    }
}
