#!/usr/bin/python3
"""A job of a GitLab template as the shell script that a runner makes of it.

    gitlab_job.py [--artifacts] TEMPLATE JOB [NAME=VALUE...]

NAME=VALUE are variables of the project. Status 200: the rules of the job leave it out.
--artifacts: the files that are uploaded, instead of the script.
"""

import re
import shlex
import sys

import yaml


def merged(base, more):
    """What extends does: tables member by member, everything else replaced."""
    if not (isinstance(base, dict) and isinstance(more, dict)):
        return more
    return {name: merged(base[name], more[name]) if name in base and name in more
            else more.get(name, base.get(name)) for name in {**base, **more}}


def job_of(template, name):
    job = template[name]
    return merged(job_of(template, job["extends"]), job) if "extends" in job else job


def value_of(variable):
    return variable.get("value", "") if isinstance(variable, dict) else str(variable)


def wanted(job, variables):
    """The two kinds of conditions that the template has."""
    def holds(condition):
        name, value = re.fullmatch(r'\$(\w+)(?: == "(\w+)")?', condition).groups()
        return variables[name] == value if value else variables[name] != ""
    return "rules" not in job or any(holds(rule["if"]) for rule in job["rules"])


def artifacts(job):
    kept = job["artifacts"]
    assert kept["when"] == "always"
    return [*kept["paths"], *kept.get("reports", {}).values()]


def main(template, name, *given):
    with open(template, encoding="utf-8") as file:
        template = yaml.safe_load(file)
    variables = {name: value_of(value) for name, value in template["variables"].items()}
    project = dict(one.split("=", 1) for one in given)
    assert project.keys() <= variables.keys(), project
    variables |= {"CI_JOB_ID": "4711", **project}
    job = job_of(template, name)
    if not wanted(job, variables):
        sys.exit(200)
    if only_artifacts:
        print(*artifacts(job), sep="\n")
        return
    # Variables of a job are made of others.
    for one, value in job["variables"].items():
        variables[one] = re.sub(r"\$(\w+)", lambda m: variables[m[1]], value_of(value))
    print("set -eo pipefail")
    for one, value in variables.items():
        print(f"export {one}={shlex.quote(value)}")
    print(*job["before_script"], *job["script"], sep="\n")


only_artifacts = "--artifacts" in sys.argv
main(*(word for word in sys.argv[1:] if word != "--artifacts"))
