//! Curves as a CSV table: a line for each point, with units in the names of the columns.

use super::curve::ScalingCurve;

const COLUMNS: [&str; 10] = [
    "workload",
    "workers",
    "seconds",
    "units",
    "units_per_second",
    "speed_up",
    "efficiency",
    "cpu_seconds",
    "light_p50_ms",
    "light_p99_ms",
];

pub(super) fn write(curves: &[ScalingCurve]) -> anyhow::Result<Vec<u8>> {
    let mut table = csv::Writer::from_writer(Vec::new());
    table.write_record(COLUMNS)?;
    for curve in curves {
        for point in &curve.points {
            table.write_record([
                curve.workload.clone(),
                point.workers.to_string(),
                format!("{:.6}", point.seconds),
                point.units.to_string(),
                format!("{:.3}", point.rate()),
                format!("{:.4}", curve.speed_up(point)),
                format!("{:.4}", curve.efficiency(point)),
                format!("{:.6}", point.cpu_seconds),
                format!("{:.4}", point.light_p50_ms),
                format!("{:.4}", point.light_p99_ms),
            ])?;
        }
    }
    Ok(table.into_inner()?)
}

#[cfg(test)]
mod tests {
    use super::super::curve::CurvePoint;
    use super::*;

    #[test]
    fn every_point_is_a_row_and_names_are_quoted_where_they_must_be() {
        let point = CurvePoint {
            workers: 1,
            seconds: 0.5,
            units: 10,
            cpu_seconds: 0.25,
            light_p50_ms: 0.1,
            light_p99_ms: 0.2,
        };
        let curve = ScalingCurve { workload: "sh -c a,b".into(), points: vec![point] };
        let text = String::from_utf8(write(&[curve]).unwrap()).unwrap();
        let row = "\"sh -c a,b\",1,0.500000,10,20.000,1.0000,1.0000,0.250000,0.1000,0.2000";
        assert_eq!(text, format!("{}\n{row}\n", COLUMNS.join(",")));
    }
}
