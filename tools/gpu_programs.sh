# SPDX-License-Identifier: Apache-2.0
# Sourced by gpu_check.sh and gpu_sanitize.sh, which set $root and $jobs: takes --programs DIR and -j N off the front of
# their arguments, into $programs and $jobs.
# shellcheck shell=bash disable=SC2034,SC2154 # of those that source it
programs=$root/build/release/tests
while [ $# -ge 2 ]; do
    case $1 in
    --programs) programs=$2 ;;
    -j) jobs=$2 ;;
    *) break ;;
    esac
    shift 2
done
