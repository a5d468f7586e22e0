# CPU image: the service on the example that comes with the repository, or the console. Mount another deployment to serve yours.
FROM python:3.12.12-slim-bookworm

WORKDIR /app
# the CPU build first: the default one brings gigabytes of CUDA
RUN --mount=type=cache,target=/root/.cache/pip \
    pip install "torch>=2.11,<2.14" --index-url https://download.pytorch.org/whl/cpu
# what the project needs, before its sources: a change of them installs nothing of this anew
COPY pyproject.toml /tmp/
RUN --mount=type=cache,target=/root/.cache/pip \
    python -c "import tomllib; told = tomllib.load(open('/tmp/pyproject.toml', 'rb'))['project']; \
print(*told['dependencies'], *told['optional-dependencies']['postgres'], sep='\n')" > /tmp/requirements.txt \
    && pip install --requirement /tmp/requirements.txt
COPY . .
# editable, so that the examples stay where the commands look for them
RUN --mount=type=cache,target=/root/.cache/pip \
    pip install --no-deps --editable .

RUN useradd --create-home --uid 1000 intentctl && mkdir /data && chown intentctl /data
USER 1000
ENV INTENTCTL_DATA_DIR=/data
VOLUME /data
EXPOSE 8642 8643

ENTRYPOINT ["intentctl"]
CMD ["serve", "--host", "0.0.0.0", "--deployment", "examples/local-cpu.yaml"]
