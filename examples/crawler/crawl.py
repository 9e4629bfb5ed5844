"""Crawls the hosts of some addresses, and prints each page, and a summary.

python3 crawl.py NAME URL...

A crawl that has the name of an earlier one goes on where that was interrupted.
"""

from __future__ import annotations

import sys
from collections import Counter, deque

from keylane import Client
from pages import host_of, job_of


def main(crawl: str, starts: list[str]) -> None:
    hosts = sorted({host_of(url) for url in starts})
    seen, waiting = set(starts), deque(starts)
    pages: Counter[str] = Counter()
    broken: list[str] = []
    with Client() as client:
        for url in starts:
            client.submit(**job_of(crawl, url, hosts))
        while waiting:
            url = waiting.popleft()
            # The worker has submitted it, before the page with the link had ended.
            job = job_of(crawl, url, hosts)["id"]
            pages[host_of(url)] += 1
            ended = client.wait(job)
            if ended.state != "succeeded":
                broken.append(f"{url}: {ended.error or ended.state}")
                continue
            page = next(client.results(job)).result
            print(page["status"], url)
            if page["status"] in (404, 410):
                broken.append(f"{url}: {page['status']}")
            new = [link for link in page["links"] if link not in seen]
            seen.update(new)
            waiting.extend(new)
    print(f"{pages.total()} pages of {len(hosts)} hosts, {len(broken)} broken links")
    for line in broken:
        print(f"  {line}")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2:])
