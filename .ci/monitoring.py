"""Lets a Prometheus read a running server, and asks it everything that the Grafana dashboard asks.

Arguments: address of the server, folder for data, commands of Prometheus and promtool.
"""

import json
import pathlib
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

SERVER, FOLDER, PROMETHEUS, PROMTOOL = sys.argv[1:]
SERVER = SERVER.rstrip("/")
ROOT = pathlib.Path(__file__).resolve().parent.parent
PATIENCE_S = 120


def request(url, body=None, method=None):
    data = None if body is None else json.dumps(body).encode()
    sent = urllib.request.Request(url, data, {"content-type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(sent, timeout=20) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        sys.exit(f"{url}: {error}: {error.read().decode()}")


def until(what, attempt):
    end = time.monotonic() + PATIENCE_S
    while not (found := attempt()):
        if time.monotonic() > end:
            sys.exit(f"not within {PATIENCE_S} s: {what}")
        time.sleep(0.25)
    return found


def submit(**job):
    return json.loads(request(f"{SERVER}/v1/jobs", job))["id"]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def work():
    """Has some of everything that is measured."""
    subtasks = [{"key": f"k{n % 3}", "payload": n} for n in range(30)]
    jobs = [
        submit(kind="work", subtasks=subtasks, tenant="red"),
        submit(kind="work", payload=1, webhook="http://127.0.0.1:9/hook"),
        submit(kind="fail", payload=1),
    ]
    request(f"{SERVER}/v1/schedules/report", {"cron": "0 9 * * *", "job": {"kind": "work", "payload": 1}}, "PUT")
    states = ("succeeded", "failed", "cancelled")
    for job in jobs:
        until(f"end of {job}", lambda: json.loads(request(f"{SERVER}/v1/jobs/{job}"))["state"] in states)


def main():
    work()
    page = request(f"{SERVER}/metrics")
    checked = subprocess.run([PROMTOOL, "check", "metrics"], input=page, text=True, capture_output=True)
    # It also advises on names, which are promised and stay.
    wrong = [line for line in checked.stderr.splitlines() if "error" in line.lower()]
    if wrong or checked.returncode not in (0, 3):
        sys.exit(f"promtool check metrics: {checked.stderr}")

    config = pathlib.Path(FOLDER, "prometheus.yml")
    config.write_text(
        json.dumps(
            {
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                "rule_files": [str(ROOT / "ops/alerts.yml")],
                "scrape_configs": [
                    {"job_name": "keylane", "static_configs": [{"targets": [SERVER.removeprefix("http://")]}]}
                ],
            }
        )
    )
    port = free_port()
    log = open(pathlib.Path(FOLDER, "prometheus.out"), "w")
    prometheus = subprocess.Popen(
        [
            PROMETHEUS,
            f"--config.file={config}",
            f"--storage.tsdb.path={FOLDER}/data",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=log,
        stderr=log,
    )
    try:
        ask_all(f"http://127.0.0.1:{port}")
    except BaseException:
        print(pathlib.Path(FOLDER, "prometheus.out").read_text()[-2000:], file=sys.stderr)
        raise
    finally:
        prometheus.kill()
        prometheus.wait()


def ask_all(prometheus):
    def query(text):
        answer = json.loads(request(f"{prometheus}/api/v1/query?{urllib.parse.urlencode({'query': text})}"))
        assert answer["status"] == "success", answer
        return answer["data"]["result"]

    def is_ready():
        try:
            return urllib.request.urlopen(f"{prometheus}/-/ready", timeout=5).status == 200
        except OSError:
            return False

    until("Prometheus is ready", is_ready)
    # A rate needs several samples.
    until("five scrapes", lambda: any(float(it["value"][1]) >= 5 for it in query("count_over_time(up[1m])")))
    assert all(it["value"][1] == "1" for it in query("up")), query("up")

    dashboard = json.loads((ROOT / "ops/grafana.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    queries = [text.replace("$instance", ".*").replace("$__rate_interval", "1m") for text in queries]
    silent = [text for text in queries if not query(text)]
    assert not silent, "no answer to:\n" + "\n".join(silent)
    rules = json.loads(request(f"{prometheus}/api/v1/rules"))["data"]["groups"]
    broken = [rule for group in rules for rule in group["rules"] if rule["health"] != "ok"]
    assert not broken, broken
    print(f"Prometheus answers {len(queries)} queries of the dashboard and evaluates {sum(len(g['rules']) for g in rules)} alerts")


main()
