"""Reports of what a command found, from one document: JSON, HTML, JUnit XML, SARIF and Markdown.

    from onnxbridge import reports
    reports.check_report_path("report.html")
    reports.write_report(reports.document(onnxbridge.verify(a, b), command="verify"), "report.html")

A document is a plain dict of JSON values, as `--json` prints it. report.schema.json describes it.
"""

from onnxbridge.reports.document import SCHEMA, document, dumps
from onnxbridge.reports.files import SUFFIXES, check_report_path, report_text, write_report

__all__ = ["SCHEMA", "SUFFIXES", "check_report_path", "document", "dumps", "report_text", "write_report"]
