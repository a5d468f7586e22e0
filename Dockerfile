# CPU image: the service on the example that comes with the repository, or the console. Mount another deployment to serve yours.
FROM python:3.12.12-slim-bookworm

WORKDIR /app
# the CPU build first: the default one brings gigabytes of CUDA
RUN pip install --no-cache-dir "torch>=2.11,<2.14" --index-url https://download.pytorch.org/whl/cpu
COPY . .
# editable, so that the examples stay where the commands look for them
RUN pip install --no-cache-dir --editable '.[postgres]'

RUN useradd --create-home --uid 1000 intentctl && mkdir /data && chown intentctl /data
USER 1000
ENV INTENTCTL_DATA_DIR=/data
VOLUME /data
EXPOSE 8642 8643

ENTRYPOINT ["intentctl"]
CMD ["serve", "--host", "0.0.0.0", "--deployment", "examples/local-cpu.yaml"]
