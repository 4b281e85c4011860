# Stands in for python:3.11-slim-bookworm: the same interpreter from Debian, and a folder of packages instead of a registry.
FROM standin/base:latest
COPY wheels /wheels
ENV PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels PIP_DISABLE_PIP_VERSION_CHECK=1
