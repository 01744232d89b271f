# The targets of this project. `make help` lists them.
SHELL := /bin/sh
# NumPy would start a thread for each core in each of thousands of processes, which wait by spinning.
export OPENBLAS_NUM_THREADS := 1
PYTHON_ENV := .venv/bin/python
PORT ?= 8080
ROUNDS ?= 5
KILLS ?= 50
ZOMBIES ?= 15
RECORDS ?= 400000
SEQUENCES ?= 200
SEEDS ?= 1000
MUTATIONS ?= 10000
STEPS ?= 10
AIRFLOW ?= 3.0.6
VERSITYGW := v1.8.0
FAKE_GCS := v1.52.2
AZURITE := 3.35.0
AXE := 4.14.1
# Tests with real components; those that take long, or need a store, a cluster, YARN, a Connect server, a registry, a browser or
# Airflow's scheduler, have targets of their own.
HERE := integration and not (store or cluster or connect or kubernetes or yarn or registry or browser or recipes or soak)
# Folders that contain them: collecting all other tests takes pytest half a minute.
WITH_PARTS := tests/faults tests/integration tests/security tests/sequences tests/stores
# Tests that read only sources and documents.
RULES := tests/documentation tests/faults/test_faults_table.py tests/scripts/test_reference.py \
  $(filter-out tests/test_reading_page.py,$(wildcard tests/test_*.py))
# The tests with Spark that depend most on the broker's version.
KAFKA44_SPARK := $(patsubst %,tests/integration/test_%.py,round_trip values republish translate_group kafka_codes unkept_record)
# Otherwise, hundreds of processes would each compile the same modules again.
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help
.PHONY: help setup class-archive setup-airflow2 setup-spark40 setup-spark42 demo demo-recovery ui stop broker test test-airflow2-spark35 test-airflow3 test-spark40 test-spark42 test-kafka44 test-pythons test-s3 test-azure-gcs test-hdfs test-stores test-clusters test-connect test-kubernetes test-yarn test-registry test-recipes models test-fab test-browser pictures test-install matrix unit rules check format coverage mutate unnoticed docs bench test-compose histories soak lock lock-jars audit licences clean

help: ## list the targets
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/  make \1|\2/' | column -t -s '|' 2>/dev/null \
	  || grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST)

setup: ## create .venv from the lock file and fetch the jars (checks Python, Java and the disk first)
	@sh scripts/setup.sh

demo: setup ## drain, validate, backfill and republish 336,776 flights with a real Kafka, Spark and Airflow
	@$(PYTHON_ENV) -m demo run

demo-recovery: setup ## destroy a cluster, and restore it to another one from the archive alone
	@$(PYTHON_ENV) -m demo recovery

ui: setup ## start a broker and Airflow on PostgreSQL, with the UI on http://127.0.0.1:8080 (PORT=…)
	@$(PYTHON_ENV) -m demo ui --port $(PORT)

stop: ## stop everything that `make ui` and `make broker` left running
	@$(PYTHON_ENV) -m demo stop

broker: setup ## start only a Kafka broker and print its address
	@$(PYTHON_ENV) -m demo.broker start --folder .demo/broker

test: setup ## run all checks and tests: without Java, and with a real broker, Spark and Airflow
	@# Short parts last, so that no long one is left alone at the end; but first what fails in a minute.
	@$(PYTHON_ENV) -m scripts.side_by_side --at-once 4 \
	  "rules=$(MAKE) --no-print-directory check licences rules" \
	  "spark=$(MAKE) --no-print-directory class-archive && $(PYTHON_ENV) -m pytest -m '$(HERE) and spark' tests/integration" \
	  "core=$(PYTHON_ENV) -m pytest -m 'not integration' tests/kafka_drain" \
	  "faults=$(PYTHON_ENV) -m pytest -m '$(HERE) and spark' $(filter-out tests/integration,$(WITH_PARTS))" \
	  "airflow=$(PYTHON_ENV) -m pytest -m '$(HERE) and airflow and not spark' $(WITH_PARTS)" \
	  "apart=$(PYTHON_ENV) -m pytest -m '$(HERE) and not (airflow or spark)' $(WITH_PARTS)" \
	  "unit=$(PYTHON_ENV) -m pytest -m 'not integration' $(patsubst %,--ignore=%,tests/kafka_drain $(RULES))"

test-stores: class-archive ## run the tests of Spark on an object store, against moto's server: 4 minutes
	@$(PYTHON_ENV) -m pytest -m store $(WITH_PARTS)

test-clusters: class-archive ## run the tests with tiered storage, and those that kill nodes of a three-broker and of a Spark cluster: 8 minutes
	@$(PYTHON_ENV) -m pytest -m cluster $(WITH_PARTS)

test-connect: class-archive ## run the jobs on a Spark Connect server, from a client without Java and pyspark: 10 minutes
	@sh scripts/connect_client.sh .venv-connect
	@TESTS_CONNECT_PYTHON=$(CURDIR)/.venv-connect/bin/python $(PYTHON_ENV) -m pytest -m connect tests/integration

test-airflow2-spark35: setup-airflow2 ## run the tests on Airflow 2.11.2 and Spark 3.5.7, in .venv-airflow2
	@.venv-airflow2/bin/kafka-drain class-archive || echo "make: continuing without a CDS archive"
	@.venv-airflow2/bin/python -m pytest -m "not integration"
	@.venv-airflow2/bin/python -m pytest -m integration

test-airflow3: setup ## run the tests of the Airflow side with the pins that Airflow 3.0.6 came with (AIRFLOW=3.1.8)
	@$(PYTHON_ENV) -m scripts.airflow_environment $(AIRFLOW) .venv-airflow$(AIRFLOW)
	@.venv-airflow$(AIRFLOW)/bin/python -m kafka_drain.spark.jars.fetch
	@.venv-airflow$(AIRFLOW)/bin/python -m pytest -m "not integration" tests/kafka_drain_airflow tests/dags tests/documentation
	@.venv-airflow$(AIRFLOW)/bin/python -m pytest -m '$(HERE) and airflow and not spark' $(WITH_PARTS)

test-spark40: setup-spark40 ## run the tests that need Spark on Spark 4.0.2, in .venv-spark40
	@.venv-spark40/bin/kafka-drain class-archive || echo "make: continuing without a CDS archive"
	@.venv-spark40/bin/python -m pytest -m '$(HERE) and spark' $(WITH_PARTS)

test-spark42: setup-spark42 ## run the tests that need Spark on Spark 4.2.0, in .venv-spark42
	@.venv-spark42/bin/kafka-drain class-archive || echo "make: continuing without a CDS archive"
	@.venv-spark42/bin/python -m pytest -m '$(HERE) and spark' $(WITH_PARTS)

test-kafka44: setup ## run the tests without Spark or Airflow, and those of drains and republishes, on Kafka 4.4.0
	@DEMO_KAFKA=4.4.0 $(PYTHON_ENV) -m pytest -m '$(HERE) and not (airflow or spark)' $(WITH_PARTS)
	@DEMO_KAFKA=4.4.0 $(PYTHON_ENV) -m pytest -m '$(HERE) and spark' $(KAFKA44_SPARK)

test-pythons: ## run the tests that need no Java on Python 3.10, 3.12 and 3.13, in separate environments
	@for python in python3.10 python3.12 python3.13; do \
	  PYTHON=$$python sh scripts/setup.sh .venv-$$python requirements.lock \
	  && .venv-$$python/bin/python -m pytest -m "not integration" || exit; done

test-s3: class-archive ## run the S3 tests against Versity's S3 Gateway, a real server; needs Go
	@GOBIN=$(CURDIR)/.demo/bin go install github.com/versity/versitygw/cmd/versitygw@$(VERSITYGW)
	@TESTS_VERSITYGW=$(CURDIR)/.demo/bin/versitygw $(PYTHON_ENV) -m pytest tests/stores tests/faults -k s3

test-azure-gcs: class-archive ## run leases, faults and commands against fake-gcs-server, and what needs no Spark against Azurite; needs npm and Go
	@npm install --silent --no-save --prefix $(CURDIR)/.demo/azurite azurite@$(AZURITE)
	@GOBIN=$(CURDIR)/.demo/bin go install github.com/fsouza/fake-gcs-server@$(FAKE_GCS)
	@.venv/bin/uv pip install --quiet --python $(PYTHON_ENV) --target .demo/azure-gcs adlfs gcsfs
	@$(PYTHON_ENV) -m kafka_drain.cli jars --gcs
	@TESTS_AZURITE=$(CURDIR)/.demo/azurite/node_modules/.bin/azurite-blob TESTS_FAKE_GCS=$(CURDIR)/.demo/bin/fake-gcs-server \
	  TESTS_STORE_PACKAGES=$(CURDIR)/.demo/azure-gcs $(PYTHON_ENV) -m pytest tests/stores tests/faults -k "azure or gcs"

test-hdfs: class-archive ## run leases, faults and commands on a real HDFS of one node: 15 minutes
	@TESTS_HDFS=1 $(PYTHON_ENV) -m pytest tests/stores tests/faults -k hdfs

test-kubernetes: class-archive ## run drivers and executors in the pods of a stand-in for Kubernetes: 5 minutes
	@$(PYTHON_ENV) -m pytest -m kubernetes tests/integration

test-yarn: class-archive ## run the jobs on a YARN of one node, with drivers in client and in cluster mode: 10 minutes
	@$(PYTHON_ENV) -m pytest -m yarn tests/integration

test-registry: class-archive ## run the tests with two real Schema Registries (Apicurio's, which needs Java 21): 5 minutes
	@$(PYTHON_ENV) -m pytest -m registry tests/integration

test-browser: setup ## check pages with axe-core, approve a plan and follow the tutorial, in a real Chromium; needs npm
	@npm install --silent --no-save --prefix $(CURDIR)/.demo/axe axe-core@$(AXE)
	@TESTS_AXE=$(CURDIR)/.demo/axe/node_modules/axe-core/axe.min.js $(PYTHON_ENV) -m pytest -m browser tests/integration

pictures: setup ## take the pictures of docs/images again, in a real Chromium; the dark ones are in build/pictures/dark
	@TESTS_PICTURES=$(CURDIR)/build/pictures $(PYTHON_ENV) -m pytest -m browser tests/integration/test_tutorial_in_browser.py \
	  --basetemp=/tmp/kafka-drain-pictures
	@cp build/pictures/light/*.png docs/images

test-fab: setup ## run the tests of rights with Airflow's FAB auth manager, in .venv-fab: 2 minutes
	@sh scripts/setup.sh .venv-fab requirements.lock without-jars
	@.venv-fab/bin/uv pip install --quiet --python .venv-fab apache-airflow-providers-fab
	@.venv-fab/bin/python -m pytest tests/kafka_drain_airflow/pages/test_rights_fab.py

test-recipes: class-archive ## run the recipes that need Airflow's scheduler: 3 minutes
	@$(PYTHON_ENV) -m pytest -m recipes tests/integration

test-install: setup ## resolve the package with the pins of five Airflow releases, 2.11 to 3.3; needs the network
	@$(PYTHON_ENV) -m scripts.install_check

matrix: setup ## run all test suites and write the results to docs/matrix.json and docs/tested.md
	@KAFKA_DRAIN_MATRIX=1 $(PYTHON_ENV) -m pytest -m "not integration"
	@KAFKA_DRAIN_MATRIX=1 $(PYTHON_ENV) -m pytest -m integration
	@KAFKA_DRAIN_MATRIX=1 $(MAKE) --no-print-directory test-airflow2-spark35 test-spark40 test-spark42
	@KAFKA_DRAIN_MATRIX=1 $(MAKE) --no-print-directory test-pythons

class-archive: setup # makes Spark start faster; optional, as Spark also works without it
	@.venv/bin/kafka-drain class-archive || echo "make: continuing without a CDS archive"

setup-airflow2: # like setup, for Airflow 2 and Spark 3.5
	@sh scripts/setup.sh .venv-airflow2 requirements-airflow2.lock

setup-spark40 setup-spark42: setup-spark%: # like setup, with the pyspark of requirements-spark*.lock
	@sh scripts/setup.sh .venv-spark$* requirements.lock without-jars
	@.venv-spark$*/bin/uv pip install --quiet --python .venv-spark$* --no-deps --require-hashes \
	  -r requirements-spark$*.lock
	@.venv-spark$*/bin/python -m kafka_drain.spark.jars.fetch

unit: setup ## run only the tests that need no Java (ARGS="tests/kafka_drain/proof -k sealing")
	@$(PYTHON_ENV) -m pytest -m "not integration" $(ARGS)

rules: setup ## run only the tests that read sources and documents: imports, docs, references, wording; less than a minute
	@$(PYTHON_ENV) -m pytest -m "not integration" $(RULES)

check: setup ## check lint rules, formatting and types without changing anything
	@$(PYTHON_ENV) -m ruff check .
	@$(PYTHON_ENV) -m ruff format --check .
	@$(PYTHON_ENV) -m mypy

format: setup ## format the code
	@$(PYTHON_ENV) -m ruff check --fix .
	@$(PYTHON_ENV) -m ruff format .

coverage: setup ## measure the unit tests' coverage; ARGS=tests/integration/test_x.py includes those tests
	@rm -rf build/coverage
	@$(PYTHON_ENV) -m coverage run -m pytest -m "not integration" || echo "make: continuing with the figures"
	@# Workers forked by Spark's daemon are killed before they can write their coverage data.
	@test -z "$(ARGS)" || SPARK_SUBMIT_OPTS=-Dspark.python.use.daemon=false \
	  $(PYTHON_ENV) -m coverage run -m pytest -m integration $(ARGS) || echo "make: continuing with the figures"
	@$(PYTHON_ENV) -m coverage combine --quiet
	@$(PYTHON_ENV) -m coverage html --quiet
	@$(PYTHON_ENV) -m coverage json --quiet
	@$(PYTHON_ENV) -m scripts.coverage_table build/coverage/coverage.json
	@echo "build/coverage/html/index.html"

mutate: setup ## run mutation tests; fail if less than 95 % of the mutants are detected (ONLY="retention")
	@nice -n 10 $(PYTHON_ENV) -m scripts.mutation $(ONLY)

unnoticed: setup ## show what tests don't notice: changes to a module, one at a time (MODULE=kafka_drain.archive.copies TESTS="…")
	@nice -n 10 $(PYTHON_ENV) -m scripts.unnoticed $(MODULE) $(TESTS)

docs: setup ## build the documentation site in build/site; needs Python 3.11
	@$(PYTHON_ENV) -m sphinx --quiet --fresh-env --fail-on-warning \
	  -b html -c docs -d build/doctrees . build/site
	@echo "build/site/index.html"

bench: class-archive ## run all benchmarks against alternatives: about two hours (ONLY="drain republish" ROUNDS=5)
	@sh scripts/connect_client.sh .venv-connect
	@TESTS_CONNECT_PYTHON=$(CURDIR)/.venv-connect/bin/python $(PYTHON_ENV) -m benchmarks --rounds $(ROUNDS) $(ONLY)

test-compose: setup ## build, use and remove the Docker stack: 2 minutes, 7 the first time (DATA_FOLDER=…)
	@$(PYTHON_ENV) -m scripts.compose_test $(if $(DATA_FOLDER),--data-folder $(DATA_FOLDER))

histories: setup ## play random histories with Kafka and Spark in memory, ten thousand an hour and more (SEEDS=1000 STEPS=10)
	@$(PYTHON_ENV) -m tests.histories --seeds $(SEEDS) --steps $(STEPS)

soak: setup ## kill republishes repeatedly, run random sequences, in memory and on real parts alike, change archives at random, and the tests that take long (KILLS=50 ZOMBIES=15 RECORDS=400000 SEQUENCES=200 MUTATIONS=10000 SEED=…)
	@$(PYTHON_ENV) -m tests.faults.soak --kills $(KILLS) --zombies $(ZOMBIES) --records $(RECORDS)
	@$(PYTHON_ENV) -m tests.sequences.soak --sequences $(SEQUENCES) --steps $(STEPS)
	@$(PYTHON_ENV) -m tests.histories.comparison --seeds $(SEQUENCES) --steps $(STEPS)
	@$(PYTHON_ENV) -m tests.agreement.soak --mutations $(MUTATIONS) $(if $(SEED),--seed $(SEED))
	@$(PYTHON_ENV) -m pytest -m soak $(WITH_PARTS)
	@TESTS_KILL_EVERY=1 $(PYTHON_ENV) -m pytest $$(grep -rl 'in kill_points()' tests) -k killed

models: setup ## check the models of the republish and of the lease, in each order of their steps; needs Spin
	@$(PYTHON_ENV) -m tests.protocols.check

lock: setup ## regenerate the lock files from pyproject.toml and requirements*.txt
	@for name in requirements requirements-airflow2; do \
	  .venv/bin/uv pip compile pyproject.toml -c $$name.txt --universal --python-version 3.10 \
	    --generate-hashes --extra spark --extra demo --extra s3 --extra kubernetes --extra postgres --extra protobuf --group dev $$(test $$name != requirements || echo --group docs --group mutation) \
	    --no-annotate --quiet -o $$name.lock || exit; done
	@.venv/bin/uv pip compile pyproject.toml -c requirements.lock --universal --python-version 3.10 \
	  --generate-hashes --extra spark-and-connect --extra s3 --extra postgres --no-annotate --quiet -o requirements-docker.lock
	@for spark in 4.0.2 4.2.0; do \
	  echo pyspark==$$spark | .venv/bin/uv pip compile - --no-deps --universal --python-version 3.10 \
	    --generate-hashes --no-annotate --quiet -o requirements-spark$$(echo $$spark | tr -d . | cut -c 1-2).lock \
	    || exit; done
	@.venv/bin/uv pip compile --group audit --universal --python-version 3.10 \
	  --generate-hashes --no-annotate --quiet -o requirements-audit.lock

lock-jars: ## regenerate jars.lock after a change to ivy.xml
	@sh scripts/setup.sh .venv requirements.lock without-jars
	@$(PYTHON_ENV) -m scripts.lock_jars

audit: setup ## check everything pinned in the lock files for known vulnerabilities; needs the network
	@.venv/bin/uv venv --quiet --clear --python $(PYTHON_ENV) .venv-audit
	@.venv/bin/uv pip install --quiet --python .venv-audit --require-hashes -r requirements-audit.lock
	@.venv-audit/bin/python -m scripts.audit requirements*.lock

licences: setup ## check that every installed package has a licence that this project may depend on
	@$(PYTHON_ENV) -m scripts.licences

clean: ## remove the environments and the demo's data; keeps the cached jars
	@! test -x $(PYTHON_ENV) || ! test -d .demo || $(PYTHON_ENV) -m demo stop
	@rm -rf .venv .venv-* .demo build
