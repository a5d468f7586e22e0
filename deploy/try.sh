#!/usr/bin/env bash
# Build the image, start all parts as docs/deploy.md says, ask for readiness and a completion, switch, and take all of it down again.
# It has secrets and volumes of its own and touches no others, but its ports are those of docker-compose.yml: stop a service that
# runs there first. Parts may be named where not every image can be had: deploy/try.sh console prometheus
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022 # each part reads the secrets as a user of its own; nobody else enters the folder

folder=$(mktemp -d)
compose() { docker compose --project-name intentctl-try --file docker-compose.yml --file "$folder/secrets.yml" "$@"; }

down() {
  status=$?
  if [ "$status" != 0 ]; then
    compose logs --tail 50 || true
  fi
  compose down --volumes || true
  rm -rf "$folder"
  exit "$status"
}
trap down EXIT

cat >"$folder/secrets.yml" <<END
secrets:
  postgres_password: {file: "$folder/postgres_password"}
  prometheus_key: {file: "$folder/prometheus_key"}
  grafana_password: {file: "$folder/grafana_password"}
END
openssl rand -hex 24 >"$folder/postgres_password"
openssl rand -hex 24 >"$folder/grafana_password"

compose up --build --detach --wait service
compose exec -T service intentctl keys create prometheus --role metrics >"$folder/prometheus_key"
compose up --detach --wait "$@"

key=$(compose exec -T service cat /data/admin.key)
ask() { # the key comes by a file, which nobody sees in a list of processes
  curl --fail-with-body --silent --show-error --config <(printf 'header = "Authorization: Bearer %s"\n' "$key") "$@"
  echo
}
complete() {
  ask --header "Content-Type: application/json" http://127.0.0.1:8642/openai/v1/completions \
    --data '{"model": "counting", "prompt": "count by 7 from 23:", "max_tokens": 20}'
}

ask http://127.0.0.1:8642/readyz
complete
compose exec -T service intentctl "run it with tp=2" --yes
complete
compose exec -T service intentctl get
echo "all of it works"
