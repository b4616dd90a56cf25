//! From a grid file to its cases.

use std::collections::BTreeSet;
use std::path::Path;

use proptest::prelude::*;
use scenario::Request;
use serde_json::{Value as Json, json};
use sweep::{Grid, Plan};

fn grid(text: &str) -> Result<Grid, commands::Failure> {
    Grid::parse(text, Path::new("."), &Request::default())
}

fn plan(text: &str) -> Plan {
    grid(text).unwrap().plan(2).unwrap()
}

/// The values of one axis, case by case.
fn values(plan: &Plan, axis: &str) -> Vec<Json> {
    let at = plan.head.axes.iter().position(|name| name == axis).unwrap();
    plan.cases.iter().map(|case| case.values[at].clone()).collect()
}

fn mistake(text: &str) -> String {
    match grid(text).map(|grid| grid.plan(1)) {
        Err(failure) | Ok(Err(failure)) => {
            let mistake = failure.mistake();
            let [place, help] = [mistake.place, mistake.help].map(Option::unwrap_or_default);
            format!("{} | {place} | {help}", mistake.message)
        }
        Ok(Ok(_)) => panic!("nobody complains about:\n{text}"),
    }
}

#[test]
fn lists_ranges_and_keys_that_are_bound_make_a_product() {
    let plan = plan(
        r#"
        from = "small-16"
        engine = "analytic"
        [set]
        "job.batch.sequences" = 32
        [axes]
        "network.routing.qps" = [1, 4]
        seed = { from = 3, to = 5 }
        network.packet.mtu = ["1KiB", "4KiB"]
        shape = [
          { name = "small", "job.parallel.tp" = 4, "job.parallel.dp" = 4 },
          { job.parallel.tp = 8, job.parallel.dp = 2 },
        ]
        "#,
    );
    assert_eq!(plan.head.axes, ["network.routing.qps", "seed", "network.packet.mtu", "shape"]);
    assert_eq!(plan.cases.len(), 2 * 3 * 2 * 2);
    let last = plan.cases.last().unwrap();
    assert_eq!(last.seed, 5);
    assert_eq!(
        last.assignments(),
        [
            "network.routing.qps=4",
            "seed=5",
            "network.packet.mtu=4KiB",
            "job.parallel.tp=8",
            "job.parallel.dp=2"
        ]
    );
    assert_eq!(values(&plan, "shape")[..2], [json!("small"), json!(8)]);
    let hashes: BTreeSet<&str> = plan.cases.iter().map(|case| &*case.hash).collect();
    assert_eq!(hashes.len(), 24, "cases that differ have hashes that differ");
}

#[test]
fn ranges_go_by_steps_points_and_factors() {
    let of = |range: &str| {
        let text = format!("from = \"small-16\"\n[axes]\nseed = {range}");
        values(&plan(&text), "seed")
    };
    assert_eq!(of("{ from = 0, to = 10, step = 5 }"), [json!(0), json!(5), json!(10)]);
    assert_eq!(
        of("{ from = 1, to = 8, points = 4, scale = \"log\" }"),
        [1, 2, 4, 8].map(|n| json!(n))
    );
    let text = "from = \"small-16\"\n[axes]\n\"prices.pue\" = { from = 1.0, to = 2.0, points = 3 }";
    assert_eq!(values(&plan(text), "prices.pue"), [1.0, 1.5, 2.0].map(|n| json!(n)));
}

/// What resolves to the same scenario is one case, however it is written; what does not is another.
#[test]
fn a_hash_is_of_what_the_scenario_comes_to() {
    let of = |axes: &str, engine: &str| {
        let text = format!("from = \"small-16\"\nengine = \"{engine}\"\n[axes]\n{axes}");
        plan(&text).cases.into_iter().map(|case| case.hash).collect::<Vec<_>>()
    };
    let one = of("\"network.packet.mtu\" = [\"4096B\", \"4KiB\"]", "flow");
    assert_eq!(one[0], one[1]);
    assert_ne!(one, of("\"network.packet.mtu\" = [\"4096B\", \"4KiB\"]", "analytic"));
    let text = "[axes]\nfrom = [\"small-16\", \"small-128\"]\nengine = [\"flow\", \"analytic\"]";
    let plan = plan(text);
    let hashes: BTreeSet<&str> = plan.cases.iter().map(|case| &*case.hash).collect();
    assert_eq!(hashes.len(), 4);
}

#[test]
fn conditions_take_combinations_out() {
    let plan = plan(
        r#"
        from = "small-128"
        where = ["tp * dp == cluster.gpus", "not (tp == 8 and seed > 0)"]
        [axes]
        tp = [{ "job.parallel.tp" = 4 }, { "job.parallel.tp" = 8 }]
        dp = [{ "job.parallel.dp" = 16 }, { "job.parallel.dp" = 32 }]
        seed = [0, 1]
        "#,
    );
    let pairs: Vec<String> = plan.cases.iter().map(|c| format!("{:?}", c.assignments())).collect();
    assert_eq!(plan.cases.len(), 3, "{pairs:?}");
    assert_eq!(plan.head.refused, 5);
}

#[test]
fn mistakes_are_named_with_their_place_and_what_was_meant() {
    let cases = [
        ("form = \"small-16\"", "no key `form` in a grid | grid:1:1 | did you mean `from`?"),
        ("from = \"small-61\"", "small-61"),
        ("engine = \"flows\"", "did you mean \"flow\"?"),
        ("from = \"small-16\"\n[axes]\n\"network.routing.qp\" = [1]", "`qp`"),
        ("from = \"small-16\"\n[axes]\n\"network.routing.qps\" = [\"many\"]", "grid:3:"),
        ("from = \"small-16\"\n[axes]\ngpus = [1, 2]", "no key `gpus` in a scenario"),
        ("from = \"small-16\"\n[axes]\nseed = 3", "one value, no list"),
        ("from = \"small-16\"\n[axes]\nseed = { from = 3, too = 4, to = 9 }", "did you mean `to`"),
        ("from = \"small-16\"\n[axes]\nseed = [1, 1]", "has 1 twice"),
        ("from = \"small-16\"\n[axes]\nseed = []", "has no values"),
        ("from = \"small-16\"\n[set]\nseed = 1\n[axes]\nseed = [1, 2]", "`seed` is set by axis"),
        ("from = \"small-16\"\nwhere = \"sed > 1\"\n[axes]\nseed = [1, 2]", "did you mean `seed`?"),
        ("from = \"small-16\"\nwhere = \"seed >\"\n[axes]\nseed = [1, 2]", "a value was expected"),
        ("from = \"small-16\"\nwhere = \"seed > 9\"\n[axes]\nseed = [1, 2]", "refuse all 2"),
        ("from = \"small-16\"\n[axes]\nseed = { from = 0, to = 99999999 }", "1,000,000 values"),
        (
            "from = \"small-16\"\n[axes]\n\"prices.pue\" = { from = 1.0, to = 1.5 }",
            "infinitely many",
        ),
        ("from = \"small-16\"\n[sample]\ncount = 0", "from 1 to 1,000,000"),
        ("from = \"small-16\"\n[keep]\nmeasure = [\"a\"]", "did you mean `measures`?"),
        ("from = \"small-16\"\nbudget = \"soon\"", "soon"),
        ("from = \"small-16\"\n[axes", "ends too early"),
    ];
    for (text, expected) in cases {
        let said = mistake(text);
        assert!(said.contains(expected), "{text}\n  says {said}\n  not  {expected}");
    }
}

/// Every problem of a grid: what, where and what was meant.
fn mistakes(text: &str) -> Vec<String> {
    let Err(commands::Failure::Input(problems)) = grid(text) else { panic!("no problem: {text}") };
    let line = |problem: &scenario::Problem| {
        let place = problem.place.as_ref().expect("a place");
        let word = &place.source.text[place.span.clone()];
        let help = problem.help.clone().unwrap_or_default();
        format!("{:?} `{word}` {} | {help}", place.line_and_column(), problem.message)
    };
    problems.0.iter().map(line).collect()
}

/// All conditions that cannot be decided are told, each where it stands, before anything runs.
#[test]
fn conditions_that_cannot_be_decided_are_all_told_with_their_places() {
    let text = r#"from = "small-16"
where = [
  "policy == 'spary'",
  "policy > 3",
  "seed = 1",
  'seed =< 1',
  "policy == spray",
]
[[constraint]]
where = "seed == 'two'"
[axes]
seed = [0, 1]
policy = [
  { name = "ecmp", "network.routing.policy" = "ecmp" },
  { name = "spray", "network.routing.policy" = "spray" },
]
"#;
    let told = mistakes(text);
    let expected = [
        "(3, 14) `'spary'` `policy` is never 'spary' | did you mean 'spray'? it is one of",
        "(4, 4) `policy` `>` wants a number, and `policy` is a text",
        "(5, 9) `=` there is no operator `=` | write `==`",
        "(6, 9) `=<` there is no operator `=<` | write `<=`",
        "(7, 14) `spray` `spray` is no axis and no key with a value | texts stand in quotes",
        "(10, 10) `seed == 'two'` `==` compares what is never alike: `seed` is a number, and",
    ];
    assert_eq!(told.len(), expected.len(), "{told:#?}");
    for (told, expected) in told.iter().zip(expected) {
        assert!(told.starts_with(expected), "{told}\nnot {expected}");
    }
}

/// A misspelt key is one mistake, however many values it has, and stands where the key stands.
#[test]
fn a_misspelt_axis_is_told_once_at_its_name() {
    let text = "from = \"small-16\"\n[axes]\n\"network.routing.qsp\" = [1, 2, 4]\nqps = [1, 2]\n\
                sede = { from = 0, to = 3 }\n";
    let told = mistakes(text);
    assert_eq!(told.len(), 3, "{told:#?}");
    assert!(
        told[0].starts_with("(3, 1) `\"network.routing.qsp\"` there is no key `qsp`"),
        "{told:?}"
    );
    assert!(told[0].contains("did you mean `qps`?"), "{told:?}");
    assert!(told[1].starts_with("(4, 1) `qps`") && told[1].contains("network.routing.qps"));
    assert!(told[2].starts_with("(5, 1) `sede`") && told[2].contains("did you mean `seed`?"));
}

/// A sample that cannot have as many cases as it asks for says so, and why.
#[test]
fn samples_that_fall_short_say_so() {
    let remarks = |sample: &str| {
        let text = format!(
            "from = \"small-16\"\nwhere = \"seed != 3\"\n[axes]\nseed = {{ from = 0, to = 9 }}\n\
             \"network.routing.qps\" = [1, 2]\n[sample]\n{sample}"
        );
        plan(&text).head.remarks
    };
    assert_eq!(
        remarks("count = 100"),
        ["`[sample]` asks for 100 cases and gets 18: the axes have 20 combinations and \
             conditions \
          refuse 2."]
    );
    assert_eq!(remarks("count = 18"), [""; 0]);
    let hypercube = remarks("count = 30\nmethod = \"latin-hypercube\"");
    assert!(hypercube[0].contains("asks for 30 cases and gets"), "{hypercube:?}");
    assert!(hypercube[0].contains("were drawn before and conditions refuse"), "{hypercube:?}");
}

#[test]
fn what_stays_where_the_transport_varies_is_said() {
    let axes = |more: &str| {
        let text = format!(
            "from = \"small-16\"\n[axes]\nkind = [\n\
             {{ \"network.transport\" = \"rocev2\"{more} }},\n\
             {{ \"network.transport\" = \"infiniband\"{more} }},\n]\n"
        );
        plan(&text).head.remarks
    };
    let remarks = axes("");
    assert!(remarks[0].contains("`cluster.nic`") && remarks[0].contains("`fabric.switch`"));
    let bound = axes(", \"cluster.nic\" = \"connectx-7\"");
    assert!(!bound[0].contains("`cluster.nic`") && bound[0].contains("`fabric.switch`"));
}

/// Plans are told apart by what was written, not by numbers that nobody knows.
#[test]
fn differences_name_what_differs() {
    let of = |from: &str, set: &str, seeds: &str| {
        let text = format!("from = \"{from}\"\n[set]\n{set}\n[axes]\nseed = {seeds}");
        plan(&text)
    };
    let one = of("small-16", "\"prices.pue\" = 1.5", "[0, 1]");
    assert_eq!(one.differences(&one.clone()), [""; 0]);
    let from = one.differences(&of("small-128", "\"prices.pue\" = 1.5", "[0, 1]"));
    assert_eq!(from[0], "from: small-16 there, small-128 here");
    let set = one.differences(&of("small-16", "", "[0, 1]"));
    assert_eq!(set[0], "[set]: prices.pue=1.5 there, nothing here");
    let values = one.differences(&of("small-16", "\"prices.pue\" = 1.5", "[0, 2]"));
    assert_eq!(values[0], "cases: 2 there, 2 here, 1 of them the same");
    assert!(values[1].contains("values of an axis"), "{values:?}");
    let kept = Plan::parse(&one.text().unwrap(), "plan").unwrap();
    assert_eq!(kept.head, one.head);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    /// A Latin hypercube meets every part of every axis once; lists get equal shares.
    #[test]
    fn a_latin_hypercube_is_one(count in 2_usize..24, seed in 0_u64..1000) {
        let plan = plan(&format!(
            "from = \"small-16\"\n[axes]\n\"prices.pue\" = {{ from = 1.0, to = 2.0 }}\n\
             \"prices.usd_per_kwh\" = {{ from = 0.01, to = 1.0, scale = \"log\" }}\nseed = [1, 2]\n\
             [sample]\nmethod = \"latin-hypercube\"\ncount = {count}\nseed = {seed}"
        ));
        prop_assert_eq!(plan.cases.len(), count);
        let parts = |axis: &str, share: &dyn Fn(f64) -> f64| -> BTreeSet<usize> {
            let values = values(&plan, axis).into_iter().map(|value| value.as_f64().unwrap());
            values.map(|value| (share(value) * count as f64 + 1e-9) as usize).collect()
        };
        prop_assert_eq!(parts("prices.pue", &|pue| pue - 1.0).len(), count);
        prop_assert_eq!(parts("prices.usd_per_kwh", &|usd| (usd / 0.01).log10() / 2.0).len(), count);
        let ones = values(&plan, "seed").into_iter().filter(|seed| *seed == json!(1)).count();
        prop_assert!(ones.abs_diff(count - ones) <= 1);
    }

    /// A random sample has as many cases as there are to have, none twice, the same every time.
    #[test]
    fn a_random_sample_is_some_of_all(count in 1_usize..30, seed in 0_u64..1000) {
        let text = format!(
            "from = \"small-16\"\nwhere = \"seed != 3\"\n[axes]\nseed = {{ from = 0, to = 9 }}\n\
             \"network.routing.qps\" = [1, 2]\n[sample]\ncount = {count}\nseed = {seed}"
        );
        let one = plan(&text);
        prop_assert_eq!(&one, &plan(&text));
        prop_assert_eq!(one.cases.len(), count.min(18));
        let hashes: BTreeSet<&str> = one.cases.iter().map(|case| &*case.hash).collect();
        prop_assert_eq!(hashes.len(), one.cases.len());
        prop_assert!(one.cases.iter().all(|case| case.seed != 3));
    }
}
