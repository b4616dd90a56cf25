//! What clusters cost and draw, held against sums by hand.

use commands::claims;
use fabric::cost::{ALL, Dollars, NETWORK, Part};
use fabric::hardware::Figure;
use fabric::summary::{Summary, summary};
use scenario::{Loaded, Request, load};

fn loaded(scenario: &str, set: &[&str]) -> Loaded {
    let set = set.iter().map(|text| (*text).to_owned()).collect();
    load(&Request { scenario: Some(scenario.to_owned()), set, ..Request::default() }).unwrap()
}

fn of(loaded: &Loaded) -> Summary {
    summary(loaded.fabric(), &loaded.scenario.cluster, &loaded.scenario.catalogue)
}

/// Oracle, by hand: two servers of eight, 323 W and 7,437 dollars around each GPU. With a card for
/// each GPU and one for the server an HGX H100 draws the 8.4 kW that were measured.
#[test]
fn servers_are_paid_for_and_draw_power() {
    let bill = of(&loaded("small-16", &[])).bill;
    let (cost, watts) = bill.of(&[Part::Host]);
    let expected = Dollars { low: 16.0 * 6_562.0, value: 16.0 * 7_437.0, high: 16.0 * 17_812.0 };
    assert_eq!((cost, watts), (expected, 16.0 * 323.0));
    let server = bill.of(&[Part::Gpu, Part::Host]).1 / 2.0 + 9.0 * 24.0;
    assert!((server / 8_400.0 - 1.0).abs() < 1e-3, "{server}");
    assert_eq!(bill.of(&ALL).0.value, bill.cost_usd);
    assert!(bill.cost_low_usd < bill.cost_usd && bill.cost_usd < bill.cost_high_usd);
}

/// Every price of the catalogue says between which ends it lies, and one box has one price.
#[test]
fn prices_have_ends() {
    let catalogue = &loaded("small-16", &[]).scenario.catalogue;
    let mut prices: Vec<(String, &Figure)> = Vec::new();
    for (name, gpu) in &catalogue.gpu {
        prices.push((name.clone(), &gpu.price_usd));
        prices.push((format!("around {name}"), gpu.host_usd.as_ref().unwrap()));
    }
    prices.extend(catalogue.nic.iter().map(|(name, nic)| (name.clone(), &nic.price_usd)));
    for (name, switch) in &catalogue.switch {
        prices.push((name.clone(), &switch.price_usd));
        prices.extend(switch.card.iter().map(|card| (format!("{name} card"), &card.price_usd)));
    }
    for (name, cable) in &catalogue.cable {
        prices.push((name.clone(), &cable.ends_usd));
        prices.push((format!("{name} metre"), &cable.metre_usd));
    }
    for (name, price) in prices {
        let (Some(low), Some(high)) = (price.low, price.high) else { panic!("{name} has no ends") };
        assert!(low <= price.value && price.value <= high, "{name}: {low} to {high}");
    }
    for (split, whole) in [("spectrum-4-800", "spectrum-4"), ("tomahawk-5-800", "tomahawk-5")] {
        assert_eq!(catalogue.switch[split].price_usd, catalogue.switch[whole].price_usd);
    }
}

/// Oracle, by hand, million dollars for 2,048 GPUs in case A: 96 boxes at 32,870 or 48 at 51,999,
/// 2,048 host links at 1,324.50 and as many between switches at 995, 2,048 cards at 2,188. Ratios
/// of the other cases and of 24,576 GPUs were summed the same way.
#[test]
fn what_roce_saves_is_summed_in_pairs() {
    let ids = vec!["roce-saving-20-50".to_owned()];
    let options = claims::Options { ids, ..Default::default() };
    let report = claims::run(&options, &Request::default(), &|_| {}).unwrap();
    let saved = |id: &str| &report.claims.iter().find(|row| row.claim.id == id).unwrap().simulated;
    let links = 2_048.0 * (1_324.50 + 995.0 + 2_188.0);
    let by_hand = 1.0 - (48.0 * 51_999.0 + links) / (96.0 * 32_870.0 + links);
    assert!((saved("roce-saving-20-50-small")[0] - by_hand).abs() < 1e-6);
    let small = [0.95, 0.72, 1.09, 1.33, 0.83];
    let large = [0.93, 0.69, 1.04, 1.41, 0.79];
    for (id, ratios) in [("roce-saving-20-50-small", small), ("roce-saving-20-50", large)] {
        for (saving, ratio) in saved(id).iter().zip(ratios) {
            // At 24,576 the spines spread over 512 cores instead of the 384 of the sum by hand.
            assert!((1.0 - saving - ratio).abs() < 0.021, "{id}: {saving} beside {ratio}");
        }
    }
}

/// The network of a comparison lies between its ends, and a job's bill is the fabric's.
#[test]
fn a_job_pays_for_its_share_of_the_fabric() {
    let small = loaded("small-16", &[]);
    let engine = commands::Engine::Analytic;
    let mut watch = packetsim::Watch::default();
    let patience = commands::packets::Patience::Usual;
    let cost = commands::run_job::run(&small, engine, patience, &mut watch).unwrap().cost;
    let bill = of(&small).bill;
    assert!((cost.capital_usd / bill.cost_usd - 1.0).abs() < 1e-12);
    assert!((cost.capital_low_usd / bill.cost_low_usd - 1.0).abs() < 1e-12);
    assert!((cost.network_capital_high_usd / bill.of(&NETWORK).0.high - 1.0).abs() < 1e-12);
    assert!(cost.usd_per_million_tokens_low < cost.usd_per_million_tokens);
    assert!(cost.usd_per_million_tokens < cost.usd_per_million_tokens_high);
}
