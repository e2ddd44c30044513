#!/usr/bin/env python3
"""Drive the HTML report in headless Chromium.

    browser_test.py IBVEXP SOURCE_ROOT [PICTURE.png [DARK_PICTURE.png]]
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
IBVEXP, ROOT = pathlib.Path(sys.argv[1]).absolute(), pathlib.Path(sys.argv[2])
DRIVER, CHROMIUM = shutil.which("chromedriver"), shutil.which("chromium")
try:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.by import By
except ImportError:
    webdriver = None

LIGHT, DARK = "rgb(246, 247, 249)", "rgb(20, 23, 28)"


class Page:
    def __init__(self, driver):
        self.driver = driver

    def all(self, css):
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def one(self, css):
        return self.driver.find_element(By.CSS_SELECTOR, css)

    def shown(self):
        return int(self.one("#shown").text.split()[0])

    def background(self):
        return self.driver.execute_script("return getComputedStyle(document.body).backgroundColor")

    def scheme(self, name):
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia",
                                    {"features": [{"name": "prefers-color-scheme", "value": name}]})


def start():
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                     "--hide-scrollbars", "--window-size=1200,1400"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(service=Service(DRIVER), options=options)
    # What is folded is made when it is opened, a moment later.
    driver.implicitly_wait(30)
    return driver


def check(page):
    total = page.shown()
    assert total > 50, total
    families = len(page.all("#list details[data-kind=family]"))
    assert families > 5
    assert len(page.all("#chart button")) == families

    # Drill down: feature, name, places.
    page.one("#list details[data-kind=family] > summary").click()
    page.one("#list details[data-kind=subject] > summary").click()
    assert page.all("#list details[data-kind=subject] td.place"), "places appear"

    # Search.
    page.one("#search").send_keys("ibv_exp_post_send")
    found = page.shown()
    assert 0 < found < total
    page.one("#search").clear()
    page.one("#search").send_keys("no such thing")
    assert page.shown() == 0 and "Nothing to show" in page.one("#list").text
    page.driver.execute_script("const s = document.getElementById('search'); s.value = '';"
                               "s.dispatchEvent(new Event('input'))")
    assert page.shown() == total

    # Filters: severities, effort, feature (from the chart).
    page.one("[data-severity=works]").click()
    fewer = page.shown()
    assert fewer < total
    page.one("[data-severity=works]").click()
    assert page.shown() == total
    page.one("#effort option[value=rename]").click()
    assert 0 < page.shown() < total
    page.one("#effort option[value='']").click()
    first = page.one("#chart button")
    first.click()
    assert len(page.all("#list details[data-kind=family]")) == 1
    first.click()
    assert page.shown() == total

    page.one("#efforts button[title='other calls of libibverbs']").click()
    assert 0 < page.shown() < total
    page.one("#effort option[value='']").click()
    file = page.one("#files button")
    file.click()
    assert page.shown() == int(page.one("#files .count").text)
    file.click()
    assert page.shown() == total

    # By file.
    page.one("#by-file").click()
    files = page.all("#list details[data-kind=file]")
    assert len(files) >= 2
    files[0].find_element(By.CSS_SELECTOR, "summary").click()
    assert files[0].find_elements(By.CSS_SELECTOR, "details[data-kind=subject]")
    page.one("#by-feature").click()

    # Light and dark, by the system's setting and by the button.
    page.scheme("light")
    assert page.background() == LIGHT, page.background()
    page.scheme("dark")
    assert page.background() == DARK, page.background()
    page.one("#theme").click()
    assert page.background() == LIGHT
    page.one("#theme").click()
    assert page.background() == DARK


def main():
    if webdriver is None or DRIVER is None or CHROMIUM is None:
        print("needs chromium, chromium-driver and python3-selenium")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.html"
        subprocess.run([IBVEXP, "audit", "-q", "--html", report, "tests/samples"], check=True, cwd=ROOT)
        driver = start()
        try:
            driver.get(report.as_uri())
            page = Page(driver)
            check(page)
            log = driver.get_log("browser")
            assert not log, log
            requests = driver.execute_script("return performance.getEntriesByType('resource').length")
            assert requests == 0, "the report loads nothing"
            for picture, theme in zip(sys.argv[3:], ("light", "dark")):
                driver.execute_script("document.documentElement.dataset.theme = arguments[0]; scrollTo(0, 0)", theme)
                driver.save_screenshot(picture)
        finally:
            driver.quit()
    return 0


sys.exit(main())
