# SPDX-License-Identifier: Apache-2.0
# Sourced by gpu_check.sh and gpu_sanitize.sh, which set $root and $jobs: takes --programs DIR and -j N off the front of
# their arguments, into $programs and $jobs; --help prints their head.
# shellcheck shell=bash disable=SC2034,SC2154 # of those that source it
programs=$root/build/release/tests
refuse() {
    echo "error: $1" >&2
    exit 2
}
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help)
        awk 'NR > 2 && !sub(/^# ?/, "") { exit } NR > 2' "$0"
        exit 0
        ;;
    --programs | -j) [ $# -ge 2 ] || refuse "$1 needs a value; see --help" ;;
    -*) refuse "there is no option $1; see --help" ;;
    *) break ;;
    esac
    case $1 in
    --programs) programs=$2 ;;
    -j) [[ $2 =~ ^[1-9][0-9]{0,3}$ ]] && jobs=$2 || refuse "-j: '$2' is no number of processes from 1 to 9999" ;;
    esac
    shift 2
done
