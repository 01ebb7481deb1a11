#!/bin/sh
# Grants one role of the rebalancer what it needs and no more, with Kafka's own kafka-acls.sh.
#
#   grant.sh ROLE PRINCIPAL BOOTSTRAP_SERVERS [more options for kafka-acls.sh, such as --command-config admin.properties]
#   grant.sh collect User:rebalancer-collect broker-1:9093 --command-config admin.properties
#
# ROLE is collect, pipeline, control, or all. BYTE_RATE_TOPIC and CONSUMER_LAG_TOPIC name the input topics where they
# are not the default ones; FOREIGN_TOPICS the topics of the setting topics.foreign, with spaces between; KAFKA_ACLS the tool where it is not on the PATH; ACTION=--remove takes the grants back.
# LEVEL is how much shall work: lag, load, plan or execute (the default, all); each has the rights of those before it.
# `rebalancer check` shows what is missing and which level is reached. What each is for: docs/security.md.
set -eu

role=${1:?role: collect, pipeline, control or all} principal=${2:?principal, such as User:rebalancer} servers=${3:?bootstrap servers}
shift 3
byte_rate=${BYTE_RATE_TOPIC:-rebalancer.byte-rate} consumer_lag=${CONSUMER_LAG_TOPIC:-rebalancer.consumer-lag}
foreign=${FOREIGN_TOPICS:-}
tool=${KAFKA_ACLS:-kafka-acls.sh} action=${ACTION:---add}
force=; [ "$action" = --remove ] && force=--force

acl() {  # operations, then the resource and further options
    operations=$1
    shift
    for operation in $operations; do set -- --operation "$operation" "$@"; done
    "$tool" --bootstrap-server "$servers" "$action" $force --allow-principal "$principal" "$@"
}

level=${LEVEL:-execute}
case $level in
    lag) reached=1 ;; load) reached=2 ;; plan) reached=3 ;; execute) reached=4 ;;
    *) echo "error: level $level is unknown, allowed are lag, load, plan and execute" >&2; exit 2 ;;
esac
from() { [ "$reached" -ge "$1" ]; }  # 1 is lag, 4 is execute

collect() {
    if from 2; then acl "Describe" --cluster "$@"; fi
    acl "Describe" --topic '*' "$@"
    acl "Describe" --group '*' "$@"
    acl "Create Write" --topic "$byte_rate" --topic "$consumer_lag" "$@"
}

pipeline() {
    acl "Read" --topic "$byte_rate" --topic "$consumer_lag" "$@"
    if from 2; then for topic in $foreign; do acl "Read" --topic "$topic" "$@"; done; fi
}

control() {
    if from 4; then
        acl "Describe DescribeConfigs Alter AlterConfigs" --cluster "$@"
        acl "Describe DescribeConfigs AlterConfigs" --topic '*' "$@"
    elif from 3; then
        acl "Describe" --cluster "$@"
        acl "Describe" --topic '*' "$@"
    fi
}

case $role in
    collect | pipeline | control) "$role" "$@" ;;
    all) collect "$@"; pipeline "$@"; control "$@" ;;
    *) echo "error: role $role is unknown, allowed are collect, pipeline, control and all" >&2; exit 2 ;;
esac
