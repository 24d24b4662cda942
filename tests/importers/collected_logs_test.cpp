// SPDX-License-Identifier: Apache-2.0
// Every log of tests/data/logs against a line that was held against the file by eye: user_facts, runs, rows, their
// factors, the first and the last row's figures, and what is said to be left out; or why it is refused.
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>
#include <sstream>

#include "core/format.hpp"
#include "importers/support.hpp"

namespace gradmeter::importers {
namespace {

using core::Factor;
using core::Metric;

constexpr std::string_view table = R"(
chakra_ctrl.json: 1 runs 2 rows, collective null+allreduce, problem trace:steps=1,calls=1,bytes=4096+null, ok; null B 2100 us nan GB/s; 4096 B 100 us nan GB/s
chakra_cycle.json: refused: line 2: node 1: its dependencies form a cycle
chakra_groups.json --ranks 8: 1 runs 3 rows, collective null+allreduce, problem trace:steps=1,calls=2,bytes=2048+group=1+group=2, ok; null B 400 us nan GB/s; 1024 B 300 us nan GB/s
chakra_kinds.json --ranks 8: 1 runs 8 rows, collective null+all_gather+all_to_all+allreduce+broadcast+reduce_scatter, ranks 8, problem trace:steps=1,calls=7,bytes=14336+null+root=3+block, ok; null B 2800 us nan GB/s; 1024 B 500 us 0.001792 GB/s
chakra_missing.json: 1 runs 1 rows, problem trace:steps=1,calls=1,bytes=0, ok; null B 2100 us nan GB/s; null B 2100 us nan GB/s
chakra_no_type.json --ranks 8: refused: line 1: node 1 is a collective, but has no 'comm_type'
chakra_ok.json: 1 runs 2 rows, collective null+allreduce, problem trace:steps=1,calls=1,bytes=4096+null, ok; null B 2100 us nan GB/s; 4096 B 100 us nan GB/s
chakra_zero.json: 1 runs 1 rows, problem trace:steps=1,calls=1,bytes=0, ok; null B 2100 us nan GB/s; null B 2100 us nan GB/s
imb_allgather_v.log: 1 runs 2 rows, collective all_gather+all_to_all, ranks 4, reduction max, ok; 4096 B 4 us 0.768 GB/s; 4096 B 4 us 0.768 GB/s; left out: 1 row of 'Allgatherv' (line 17: no kind of gradmeter's), 1 row of 'Alltoallv' (line 31: no kind of gradmeter's)
imb_defects.log: 1 runs 2 rows, collective allreduce, ranks 4, reduction max, ok+wrong; 1024 B 4 us 0.384 GB/s; 2048 B 4 us 0.768 GB/s
imb_map.log: 1 runs 1 rows, collective allreduce, ranks 4, dtype fp32, op sum, reduction max, ok; 1024 B 4 us 0.384 GB/s; 1024 B 4 us 0.384 GB/s
imb_mixed.log: 1 runs 2 rows, collective allreduce+reduce_scatter, ranks 4, problem null+block, reduction max, ok; 1024 B 4 us 0.384 GB/s; 4096 B 4 us 0.768 GB/s; left out: 1 row of 'Allgatherv' (line 17: no kind of gradmeter's), 1 row of 'PingPing' (line 31: no kind of gradmeter's)
imb_multi.log: 1 runs 0 rows; left out: 2 rows of 'Multi-Allreduce' (line 12: no kind of gradmeter's)
imb_nbc.log: 1 runs 0 rows; left out: 1 row of 'Iallreduce' (line 10: no kind of gradmeter's)
imb_ok.log: 1 runs 1 rows, collective allreduce, ranks 4, reduction max, ok; 1024 B 4 us 0.384 GB/s; 1024 B 4 us 0.384 GB/s; left out: 1 row of 0 bytes
imb_one.log: 1 runs 1 rows, collective ping_pong, ranks 1, unsupported; null B no time; null B no time
imb_oom.log: 1 runs 3 rows, collective all_to_all+allreduce, ranks 4, reduction max, ok+failed; 4096 B 4 us 0.768 GB/s; 1024 B 6 us 0.256 GB/s; left out: 1 row of 0 bytes
imb_overflow.log: 1 runs 2 rows, collective gather, ranks 4, reduction max, ok+unsupported; 4096 B 4 us 0.768 GB/s; 4294967296 B no time
imb_overflow_old.log: 1 runs 6 rows, collective all_gather+broadcast, ranks 4, reduction max, ok+unsupported; 4096 B 4 us 0.768 GB/s; 1048576 B 400 us 2.621 GB/s; left out: 2 rows of 0 bytes
imb_p2p.log: 1 runs 0 rows; left out: 1 row of 'PingPong of IMB-P2P' (line 16: no kind of gradmeter's)
imb_processes_glued.log: 1 runs 4 rows, collective allreduce+broadcast, ranks 4+8, dtype fp32+null, op sum+null, reduction max, ok; 1024 B 4 us 0.384 GB/s; 1048576 B 400 us 2.621 GB/s; left out: 2 rows of 0 bytes
imb_timeout.log: 1 runs 3 rows, collective allreduce, ranks 4, reduction max, ok+failed; 1024 B 4 us 0.384 GB/s; 8 B 2 us 0.006 GB/s
imb_title_glued.log: 1 runs 4 rows, collective allreduce+broadcast, ranks 4+8, dtype fp32+null, op sum+null, reduction max, ok; 1024 B 4 us 0.384 GB/s; 2048 B 2 us 1.024 GB/s; left out: 1 row of 0 bytes
imb_title_lost.log: 1 runs 2 rows, collective allreduce, ranks 4, dtype fp32, op sum, reduction max, ok; 1024 B 4 us 0.384 GB/s; 1048576 B 400 us 3.932 GB/s; left out: 2 rows of 'a table without a title' (line 24: nobody knows of what), 1 row of 0 bytes
imb_types.log: 3 runs 3 rows, collective allreduce, ranks 4, dtype fp32+fp64, op sum+max, reduction max, ok; 1024 B 4 us 0.384 GB/s; 1024 B 4 us 0.384 GB/s
inspector_clocks.jsonl: 1 runs 2 rows, collective allreduce, ranks 4, problem time=collective_cpu+null, device cuda, ok; 1048576 B 500 us 3.146 GB/s; 1048576 B 100 us 15.73 GB/s
inspector_v5.jsonl: 1 runs 1 rows, collective allreduce, ranks 4, device cuda, ok; 1048576 B 100 us 15.73 GB/s; 1048576 B 100 us 15.73 GB/s
json_nan.json: 1 runs 1 rows, collective allreduce, ranks 8, dtype fp32, op sum, device cuda, in_place false, ok; 2097152 B 40.5 us 90.6 GB/s; 2097152 B 40.5 us 90.6 GB/s; left out: 1 row that cannot be read (result 1: 'alg_bw' is nan)
json_ranks4.json: 1 runs 2 rows, collective allreduce, ranks 4, dtype fp32, op sum, device cuda, in_place false+true, mistrusted; 1048576 B 40.5 us 45.31 GB/s; 1048576 B 39.8 us 46.11 GB/s; mistrusted: 2 rows whose columns contradict each other
json_ranks_step.json: refused: config: 'devices' has rank 1 where 8 should follow, since an entry stands for 8 ranks; nobody knows how many there are
json_root_number.json: refused: result 1: 'root' is missing or of another kind
json_split.json: 1 runs 2 rows, collective allreduce, ranks 2, dtype fp32, op sum, problem groups=4, device cuda, in_place false+true, ok; 1048576 B 40.5 us 25.89 GB/s; 1048576 B 40.5 us 25.89 GB/s
json_version_text.json: refused: the log: 'nccl_version' is missing or of another kind
kineto.json.gz: 1 runs 2 rows, collective null+allreduce, ranks 2, dtype null+fp32, op null+sum, problem trace:steps=3,calls=3,bytes=3145728+null, device cuda, ok; null B 10000 us nan GB/s; 1048576 B 3000 us 0.3495 GB/s
kineto_Infinity.json: 1 runs 2 rows, collective null+allreduce, ranks 2, dtype null+fp32, op null+sum, problem trace:steps=3,calls=3,bytes=3145728+null, device cuda, ok; null B 10000 us nan GB/s; 1048576 B 3000 us 0.3495 GB/s
kineto_cut.json: refused: line 1: it is no whole JSON; the program may not have ended
kineto_groups.json: 1 runs 5 rows, collective null+allreduce+broadcast, ranks 16+4, dtype null+fp32, op null+sum, problem trace:steps=2,calls=8,bytes=32768+group=1+group=2+null+root=3,group=2, device cuda, ok; null B 9995 us nan GB/s; 4096 B 70 us 0.05851 GB/s
kineto_inf.json: 1 runs 2 rows, collective null+allreduce, ranks 2, dtype null+fp32, op null+sum, problem trace:steps=3,calls=3,bytes=3145728+null, device cuda, ok; null B 10000 us nan GB/s; 1048576 B 3000 us 0.3495 GB/s
kineto_kinds.json: 1 runs 7 rows, collective null+all_to_all+all_to_allv+allreduce+broadcast, ranks 8, dtype null+fp32, op null+minmax+sum, problem trace:steps=2,calls=8,bytes=32768+null+root=3, device cuda, ok; null B 9995 us nan GB/s; 4096 B 50 us 0.08192 GB/s
kineto_list.json: 1 runs 2 rows, collective null+allreduce, ranks null+2, dtype null+fp32, op null+sum, problem trace:steps=3,calls=3,bytes=3145728+null, device cuda, ok; null B 10000 us nan GB/s; 1048576 B 3000 us 0.3495 GB/s
kineto_mixed.json: 1 runs 4 rows, collective null+all_gather+allreduce+send, ranks 8+2, dtype null+bf16+fp32, op null+sum, problem trace:steps=3,calls=9,bytes=3201024+null, device cuda, ok; null B 10000 us nan GB/s; 2048 B 100 us 0.02048 GB/s
kineto_nan.json: 1 runs 2 rows, collective null+allreduce, ranks 2, dtype null+fp32, op null+sum, problem trace:steps=3,calls=3,bytes=3145728+null, device cuda, ok; null B 10000 us nan GB/s; 1048576 B 3000 us 0.3495 GB/s
kineto_ok.json: 1 runs 2 rows, collective null+allreduce, ranks 2, dtype null+fp32, op null+sum, problem trace:steps=3,calls=3,bytes=3145728+null, device cuda, ok; null B 10000 us nan GB/s; 1048576 B 3000 us 0.3495 GB/s
kineto_streams.json: 1 runs 2 rows, collective null+allreduce, ranks 2, dtype null+fp32, op null+sum, problem trace:steps=3,calls=3,bytes=3145728+null, device cuda, ok; null B 10000 us nan GB/s; 1048576 B 3000 us 0.3495 GB/s
mscclpp.log --ranks 8: 1 runs 6 rows, collective allreduce, ranks 8, device cuda, in_place true+false, ok; 1048576 B 40.5 us 45.31 GB/s; 4194304 B 80.9 us 90.73 GB/s
nccl_1gpu.log: 1 runs 6 rows, collective allreduce, ranks 1, dtype fp32, op sum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 0 GB/s; 4194304 B 80.9 us 0 GB/s
nccl_all_types.log: 1 runs 144 rows, collective allreduce, ranks 8, dtype int8+uint8+int32+uint32+int64+uint64+fp16+fp32+fp64+bf16+fp8-e4m3+fp8-e5m2, op sum+prod+max+min+avg+mulsum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 45.31 GB/s; 1048576 B 39.8 us 46.11 GB/s
nccl_alltoall.log: 1 runs 6 rows, collective all_to_all, ranks 8, dtype fp32, device cuda, in_place false+true, ok; 1048576 B 40.5 us 25.89 GB/s; 4194304 B 80.9 us 51.85 GB/s
nccl_alltoallv.log: 2 runs 12 rows, collective all_to_all+all_to_allv, ranks 8, dtype fp32, device cuda, in_place false+true, ok; 1048576 B 40.5 us 22.65 GB/s; 4194304 B 80.9 us 45.36 GB/s
nccl_ansi.log: 1 runs 6 rows, collective allreduce, ranks 8, dtype fp32, op sum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 45.31 GB/s; 4194304 B 80.9 us 90.73 GB/s
nccl_big_wrong.log: 1 runs 6 rows, collective allreduce, ranks 8, dtype fp32, op sum, device cuda, in_place false+true, wrong+ok; 1048576 B 40.5 us 45.31 GB/s; 4194304 B 80.9 us 90.73 GB/s
nccl_blank_op.log --collective sendrecv: 1 runs 4 rows, collective sendrecv, ranks 8, dtype fp32, device cuda, in_place false+true, ok; 1048576 B 40.5 us 25.89 GB/s; 2097152 B 39.8 us 52.69 GB/s
nccl_concat.log: 3 runs 18 rows, collective allreduce+all_gather+reduce_scatter, ranks 8, dtype fp32, op sum+null, device cuda, in_place false+true, ok; 1048576 B 40.5 us 45.31 GB/s; 4194304 B 80.9 us 45.36 GB/s
nccl_concat_same.log: 2 runs 8 rows, collective allreduce, ranks 8, dtype fp32, op sum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 45.31 GB/s; 8388608 B 119 us 123.4 GB/s
nccl_cputime.log: 1 runs 6 rows, collective allreduce, ranks 8, dtype fp32, op sum, problem time=cpu, device cuda, in_place false+true, ok; 1048576 B 40.5 us nan GB/s; 4194304 B 80.9 us nan GB/s
nccl_crlf.log: 1 runs 6 rows, collective allreduce, ranks 8, dtype fp32, op sum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 45.31 GB/s; 4194304 B 80.9 us 90.73 GB/s
nccl_cut.log: 1 runs 2 rows, collective allreduce, ranks 8, dtype fp32, op sum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 45.31 GB/s; 1048576 B 39.8 us 46.11 GB/s; left out: line 19, the last row, which is cut
nccl_cycles.log: 2 runs 4 rows, collective allreduce, ranks 8, dtype fp32, op sum, device cuda, in_place false+true, ok; 1048576 B 40 us 45.88 GB/s; 1048576 B 49 us 37.45 GB/s
nccl_echo.log: 1 runs 6 rows, collective allreduce, ranks 8, dtype fp32, op sum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 45.31 GB/s; 4194304 B 80.9 us 90.73 GB/s
nccl_echo2.log: 1 runs 6 rows, collective allreduce, ranks 8, dtype fp32, op sum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 45.31 GB/s; 4194304 B 80.9 us 90.73 GB/s
nccl_gather.log: 1 runs 6 rows, collective gather, ranks 8, dtype fp32, device cuda, in_place false+true, ok; 1048576 B 40.5 us 25.89 GB/s; 4194304 B 80.9 us 51.85 GB/s
nccl_hypercube.log: 1 runs 6 rows, collective hypercube, ranks 8, dtype fp32, device cuda, in_place false+true, ok; 1048576 B 40.5 us 25.89 GB/s; 4194304 B 80.9 us 51.85 GB/s
nccl_indent.log: 1 runs 6 rows, collective allreduce, ranks 8, dtype fp32, op sum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 45.31 GB/s; 4194304 B 80.9 us 90.73 GB/s
nccl_info_between.log: 1 runs 6 rows, collective allreduce, ranks 8, dtype fp32, op sum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 45.31 GB/s; 4194304 B 80.9 us 90.73 GB/s
nccl_info_inside.log: 1 runs 6 rows, collective allreduce, ranks 8, dtype fp32, op sum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 45.31 GB/s; 4194304 B 80.9 us 90.73 GB/s
nccl_iterations_stamp.log: 1 runs 2 rows, collective allreduce, ranks 8, dtype fp32, op sum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 45.31 GB/s; 1048576 B 39.8 us 46.11 GB/s
nccl_journal.log: 1 runs 6 rows, collective allreduce, ranks 8, dtype fp32, op sum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 45.31 GB/s; 4194304 B 80.9 us 90.73 GB/s
nccl_k8s.log: 1 runs 6 rows, collective allreduce, ranks 8, dtype fp32, op sum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 45.31 GB/s; 4194304 B 80.9 us 90.73 GB/s
nccl_list_cut.log: 1 runs 6 rows, collective broadcast, ranks 64, dtype fp32, device cuda, in_place false+true, ok; 1048576 B 40.5 us 25.89 GB/s; 4194304 B 80.9 us 51.85 GB/s
nccl_list_gap.log: 1 runs 6 rows, collective broadcast, ranks 8, dtype fp32, device cuda, in_place false+true, mistrusted; 1048576 B 40.5 us 25.89 GB/s; 4194304 B 80.9 us 51.85 GB/s; mistrusted: 6 rows whose columns contradict each other
nccl_loop5.log: 5 runs 10 rows, collective allreduce, ranks 8, dtype fp32, op sum, device cuda, in_place false+true, ok; 1048576 B 40 us 45.88 GB/s; 1048576 B 43 us 42.67 GB/s
nccl_newline_in_row.log: 1 runs 6 rows, collective allreduce, ranks 8, dtype fp32, op sum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 45.31 GB/s; 4194304 B 80.9 us 90.73 GB/s
nccl_ok.log: 1 runs 6 rows, collective allreduce, ranks 8, dtype fp32, op sum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 45.31 GB/s; 4194304 B 80.9 us 90.73 GB/s
nccl_old_allgather.log: 1 runs 6 rows, collective all_gather, ranks 4, dtype fp32, device cuda, in_place false+true, ok; 1048576 B 40.5 us 19.42 GB/s; 4194304 B 80.9 us 38.88 GB/s
nccl_old_allreduce.log: 1 runs 6 rows, collective allreduce, ranks 4, dtype fp32, op sum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 38.84 GB/s; 4194304 B 80.9 us 77.77 GB/s
nccl_old_broadcast.log: 1 runs 6 rows, collective broadcast, ranks 4, dtype fp32, device cuda, in_place false+true, ok; 1048576 B 40.5 us 25.89 GB/s; 4194304 B 80.9 us 51.85 GB/s
nccl_old_reduce.log: 1 runs 6 rows, collective reduce, ranks 4, dtype fp32, op sum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 25.89 GB/s; 4194304 B 80.9 us 51.85 GB/s
nccl_only_rows.log: refused: line 1: a row stands before the table's head, which says what its columns are, of which collective and how many ranks; give the whole log
nccl_pdsh.log: 1 runs 6 rows, collective allreduce, ranks 8, dtype fp32, op sum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 45.31 GB/s; 4194304 B 80.9 us 90.73 GB/s
nccl_roots.log: 1 runs 8 rows, collective broadcast, ranks 4, dtype fp32, problem null+root=1+root=2+root=3, device cuda, in_place false+true, ok; 1048576 B 40 us 26.21 GB/s; 1048576 B 70 us 14.98 GB/s
nccl_row_glued.log: 1 runs 4 rows, collective allreduce, ranks 8, dtype fp32, op sum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 45.31 GB/s; 4194304 B 80.9 us 90.73 GB/s; left out: 1 row that cannot be read (line 19: something else stands before the row, or its begin is lost)
nccl_sendrecv.log: 1 runs 6 rows, collective sendrecv, ranks 8, dtype fp32, device cuda, in_place false+true, ok; 1048576 B 40.5 us 25.89 GB/s; 4194304 B 80.9 us 51.85 GB/s
nccl_settings.log: 4 runs 8 rows, collective allreduce, ranks 8, dtype fp32, op sum, problem null+agg=20,unalign=1+blocking=barrier, device cuda, in_place false+true, cudagraph 10+null, ok; 1048576 B 20.5 us 89.51 GB/s; 1048576 B 39.8 us 46.11 GB/s
nccl_split.log: 1 runs 6 rows, collective allreduce, ranks 2, dtype fp32, op sum, problem groups=8, device cuda, in_place false+true, ok; 1048576 B 40.5 us 25.89 GB/s; 4194304 B 80.9 us 51.85 GB/s
nccl_srun_l.log: 1 runs 6 rows, collective allreduce, ranks 8, dtype fp32, op sum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 45.31 GB/s; 4194304 B 80.9 us 90.73 GB/s
nccl_stamp.log: 1 runs 6 rows, collective allreduce, ranks 8, dtype fp32, op sum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 45.31 GB/s; 4194304 B 119.4 us 61.47 GB/s
nccl_tag.log: 1 runs 6 rows, collective allreduce, ranks 8, dtype fp32, op sum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 45.31 GB/s; 4194304 B 80.9 us 90.73 GB/s
nccl_tag_long.log: 1 runs 6 rows, collective allreduce, ranks 8, dtype fp32, op sum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 45.31 GB/s; 4194304 B 80.9 us 90.73 GB/s
nccl_tag_rank3.log: 1 runs 6 rows, collective allreduce, ranks 8, dtype fp32, op sum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 45.31 GB/s; 4194304 B 80.9 us 90.73 GB/s
nccl_then_osu.log: 1 runs 6 rows, collective allreduce, ranks 8, dtype fp32, op sum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 45.31 GB/s; 4194304 B 80.9 us 90.73 GB/s; left out: 3 rows of 'OSU micro-benchmarks' (line 30: another tool's, which --format osu reads)
nccl_time_zone.log: 1 runs 6 rows, collective allreduce, ranks 8, dtype fp32, op sum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 45.31 GB/s; 4194304 B 80.9 us 90.73 GB/s
nccl_two_ranks.log: 2 runs 12 rows, collective allreduce, ranks 2+8, dtype fp32, op sum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 25.89 GB/s; 4194304 B 80.9 us 90.73 GB/s
nccl_type_bfloat16.log: 1 runs 6 rows, collective allreduce, ranks 8, dtype bf16, op sum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 45.31 GB/s; 4194304 B 80.9 us 90.73 GB/s
nccl_type_double.log: 1 runs 6 rows, collective allreduce, ranks 8, dtype fp64, op sum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 45.31 GB/s; 4194304 B 80.9 us 90.73 GB/s
nccl_type_f8e4m3.log: 1 runs 6 rows, collective allreduce, ranks 8, dtype fp8-e4m3, op sum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 45.31 GB/s; 4194304 B 80.9 us 90.73 GB/s
nccl_type_f8e5m2.log: 1 runs 6 rows, collective allreduce, ranks 8, dtype fp8-e5m2, op sum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 45.31 GB/s; 4194304 B 80.9 us 90.73 GB/s
nccl_type_float.log: 1 runs 6 rows, collective allreduce, ranks 8, dtype fp32, op sum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 45.31 GB/s; 4194304 B 80.9 us 90.73 GB/s
nccl_type_half.log: 1 runs 6 rows, collective allreduce, ranks 8, dtype fp16, op sum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 45.31 GB/s; 4194304 B 80.9 us 90.73 GB/s
nccl_type_int32.log: 1 runs 6 rows, collective allreduce, ranks 8, dtype int32, op sum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 45.31 GB/s; 4194304 B 80.9 us 90.73 GB/s
nccl_type_int64.log: 1 runs 6 rows, collective allreduce, ranks 8, dtype int64, op sum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 45.31 GB/s; 4194304 B 80.9 us 90.73 GB/s
nccl_type_int8.log: 1 runs 6 rows, collective allreduce, ranks 8, dtype int8, op sum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 45.31 GB/s; 4194304 B 80.9 us 90.73 GB/s
nccl_type_uint32.log: 1 runs 6 rows, collective allreduce, ranks 8, dtype uint32, op sum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 45.31 GB/s; 4194304 B 80.9 us 90.73 GB/s
nccl_type_uint64.log: 1 runs 6 rows, collective allreduce, ranks 8, dtype uint64, op sum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 45.31 GB/s; 4194304 B 80.9 us 90.73 GB/s
nccl_type_uint8.log: 1 runs 6 rows, collective allreduce, ranks 8, dtype uint8, op sum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 45.31 GB/s; 4194304 B 80.9 us 90.73 GB/s
nccl_unknown_prefix.log: refused: it has no row to import; the first line that is no comment and no row is line 1: 'gpu-node-01 # nccl-tests version 2.17.1 nccl-headers=22703 n...'
nccl_unnamed3.log --collective all_gather: 3 runs 18 rows, collective allreduce+reduce_scatter+all_gather, ranks 8, dtype fp32, op sum+null, device cuda, in_place false+true, ok; 1048576 B 40.5 us 45.31 GB/s; 4194304 B 80.9 us 45.36 GB/s
nccl_unnamed_sum.log --collective all_gather: refused: line 16: its rows have the operation sum, but --collective all_gather; leave --collective out, or give it for the other programs' logs alone
nccl_warn_glued.log: 1 runs 6 rows, collective allreduce, ranks 8, dtype fp32, op sum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 45.31 GB/s; 4194304 B 80.9 us 90.73 GB/s
nccl_worlds.log: refused: line 8: rank 0 is there twice: separate worlds printed into this log, so that nobody knows whose a row is; give each its own log (and build with MPI=1)
nccl_worlds8.log: refused: line 8: rank 0 is there twice: separate worlds printed into this log, so that nobody knows whose a row is; give each its own log (and build with MPI=1)
nccl_wrong.log: 1 runs 6 rows, collective allreduce, ranks 8, dtype fp32, op sum, device cuda, in_place false+true, wrong+ok; 1048576 B 40.5 us 45.31 GB/s; 4194304 B 80.9 us 90.73 GB/s
nccl_zero.log: 1 runs 6 rows, collective all_gather, ranks 8, dtype fp32, device cuda, in_place false+true, ok; 1048576 B 40.5 us 22.65 GB/s; 4194304 B 80.9 us 45.36 GB/s; left out: 2 rows of 0 bytes
osu_allgather.log --ranks 8: 1 runs 3 rows, collective all_gather, ranks 8, dtype int8, device cpu, reduction avg, ok; 512 B 3.2 us 0.14 GB/s; 524288 B 120 us 3.823 GB/s
osu_allgatherv.log --ranks 8: 1 runs 0 rows; left out: 1 row of 'MPI Allgatherv Latency Test' (line 5: no kind of gradmeter's)
osu_alltoall.log --ranks 8: 1 runs 3 rows, collective all_to_all, ranks 8, dtype int8, device cpu, reduction avg, ok; 512 B 3.2 us 0.14 GB/s; 524288 B 120 us 3.823 GB/s
osu_alltoall56.log --ranks 8: 1 runs 3 rows, collective all_to_all, ranks 8, device cpu, reduction avg, ok; 512 B 3.2 us 0.14 GB/s; 524288 B 120 us 3.823 GB/s
osu_barrier.log --ranks 8: 1 runs 0 rows; left out: 1 row of 'MPI Barrier Latency Test' (line 4: no kind of gradmeter's)
osu_bibw.log --ranks 8: 1 runs 0 rows; left out: 2 rows of 'MPI Bi-Directional Bandwidth Test' (line 5: no kind of gradmeter's)
osu_bw.log --ranks 8: 1 runs 2 rows, collective ping_pong, ranks 2, dtype int8, device cpu, ok; 65536 B 7.28178 us 9 GB/s; 1048576 B 95.3251 us 11 GB/s
osu_comma.log --ranks 4: refused: it has no row to import; left out: 1 row that cannot be read (line 5: '2,00' is no number)
osu_cuda_dd.log --ranks 8: 1 runs 2 rows, collective allreduce, ranks 8, dtype int32, device cuda, reduction avg, ok; 4 B 40 us 0.000175 GB/s; 1048576 B 900 us 2.039 GB/s
osu_derived.log: 2 runs 4 rows, collective ping_pong, ranks 2, dtype int8, problem derived=vector+derived=unknown, device cpu, reduction avg, ok; 2 B 2 us 0.001 GB/s; 4 B 2.1 us 0.001905 GB/s; left out: 1 row of 'MPI Bandwidth Test of a derived data type' (line 19: whether its rate counts the gaps is not said)
osu_echo.log --ranks 8: 1 runs 2 rows, collective allreduce, ranks 8, dtype int32, device cpu, reduction avg, ok; 4 B 2 us 0.0035 GB/s; 1048576 B 500 us 3.67 GB/s
osu_get_latency.log --ranks 8: 1 runs 0 rows; left out: 2 rows of 'MPI_Get latency Test' (line 6: no kind of gradmeter's)
osu_host.log --ranks 8: 1 runs 2 rows, collective allreduce, ranks 8, dtype int32, device cpu, reduction avg, ok; 4 B 2 us 0.0035 GB/s; 1048576 B 500 us 3.67 GB/s
osu_iallreduce.log --ranks 8: 1 runs 2 rows, collective allreduce, ranks 8, dtype int32, problem non-blocking, device cpu, reduction avg, ok; 4 B 135.61 us 5.162e-05 GB/s; 1024 B 184.28 us 0.009724 GB/s
osu_indent.log --ranks 8: 1 runs 2 rows, collective allreduce, ranks 8, dtype int32, device cpu, reduction avg, ok; 4 B 2 us 0.0035 GB/s; 1048576 B 500 us 3.67 GB/s
osu_latency.log --ranks 8: 1 runs 3 rows, collective ping_pong, ranks 2, dtype int8, device cpu, reduction avg, ok; 8 B 1.6 us 0.005 GB/s; 1048576 B 110 us 9.533 GB/s
osu_mbw_mr.log --ranks 8: 1 runs 0 rows; left out: 2 rows of 'MPI Multiple Bandwidth / Message Rate Test' (line 6: no kind of gradmeter's)
osu_multi_lat.log --ranks 8: 1 runs 0 rows; left out: 2 rows of 'MPI Multi Latency Test' (line 5: no kind of gradmeter's)
osu_nan.log --ranks 8: 1 runs 2 rows, collective allreduce, ranks 8, dtype int8, device cpu, reduction avg, ok; 4 B 2 us 0.0035 GB/s; 8 B 1500 us 9.333e-06 GB/s; left out: 1 row whose time or rate is 0 or less, 2 rows that cannot be read (line 7: 'nan' is no number)
osu_nccl.log --ranks 8: 1 runs 3 rows, collective allreduce, ranks 8, dtype fp32, device cuda, reduction avg, ok; 4 B 2 us 0.0035 GB/s; 1048576 B 500 us 3.67 GB/s
osu_persistent.log --ranks 8: 1 runs 1 rows, collective allreduce, ranks 8, dtype int32, problem persistent, device cpu, reduction avg, ok; 4 B 2 us 0.0035 GB/s; 4 B 2 us 0.0035 GB/s
osu_put_latency.log --ranks 8: 1 runs 0 rows; left out: 2 rows of 'MPI_Put Latency Test' (line 6: no kind of gradmeter's)
osu_row_glued.log --ranks 8: 1 runs 3 rows, collective allreduce, ranks 8, dtype fp32, device cpu, reduction avg, ok; 4 B 2 us 0.0035 GB/s; 64 B 2.4 us 0.04667 GB/s; left out: 2 rows that cannot be read (line 6: something else stands before the row, or its begin is lost)
osu_suite.log --ranks 8: 4 runs 10 rows, collective allreduce+ping_pong+all_to_all, ranks 8+2, dtype int32+int8, problem null+non-blocking, device cpu, reduction avg, ok; 4 B 2 us 0.0035 GB/s; 1024 B 184.28 us 0.009724 GB/s; left out: 1 row of 'MPI Barrier Latency Test' (line 36: no kind of gradmeter's)
osu_tag.log --ranks 8: 1 runs 2 rows, collective allreduce, ranks 8, dtype int32, device cpu, reduction avg, ok; 4 B 2 us 0.0035 GB/s; 1048576 B 500 us 3.67 GB/s
osu_tail_valid.log --ranks 8: 1 runs 2 rows, collective allreduce, ranks 8, dtype int32, device cpu, reduction max, ok+wrong; 4 B 2.5 us 0.0028 GB/s; 8 B 2.6 us 0.005385 GB/s
osu_then_imb.log --ranks 8: 1 runs 3 rows, collective allreduce, ranks 8, dtype int8, device cpu, reduction avg, ok; 4 B 2 us 0.0035 GB/s; 1048576 B 500 us 3.67 GB/s; left out: 1 row of 'Intel MPI Benchmarks' (line 16: another tool's, which --format imb reads)
osu_then_mpi4py.log --ranks 8: 1 runs 3 rows, collective allreduce, ranks 8, dtype int8, device cpu, reduction avg, ok; 4 B 2 us 0.0035 GB/s; 1048576 B 500 us 3.67 GB/s; left out: 2 rows of 'MPI Alltoall Latency Test' (line 11: of another tool)
osu_title_glued.log --ranks 8: 2 runs 5 rows, collective allreduce+broadcast, ranks 8, dtype int8, device cpu, reduction avg, ok; 4 B 2 us 0.0035 GB/s; 2048 B 2 us 1.024 GB/s
osu_title_lost.log --ranks 8: 1 runs 3 rows, collective allreduce, ranks 8, dtype int8, device cpu, reduction avg, ok; 4 B 2 us 0.0035 GB/s; 1048576 B 500 us 3.67 GB/s; left out: 2 rows of 'a table without a title' (line 11: nobody knows of what)
param_forms.log: 1 runs 10 rows, collective allreduce+all_gather+all_gatherv+reduce_scatter+all_to_allv+all_to_all, ranks 8, dtype fp32+bf16, problem tag=myTag+tag=other+base+null+single, reduction max, ok; 1048576 B 400 us 4.588 GB/s; 1048576 B 400 us 2.294 GB/s
param_tables.log: 1 runs 1 rows, collective allreduce, ranks 8, dtype fp32, reduction max, ok; 1048576 B 400 us 4.588 GB/s; 1048576 B 400 us 4.588 GB/s; left out: 1 row of 'a table of other columns' (line 8: nobody knows of what), 1 row of 'collectives beside computation' (line 5: no kind of gradmeter's), 2 rows of 'pairs of collectives' (line 11: no kind of gradmeter's)
param_wrong_ranks.log --ranks 2: 1 runs 1 rows, collective allreduce, ranks 2, dtype fp32, reduction max, mistrusted; 1048576 B 400 us 2.621 GB/s; 1048576 B 400 us 2.621 GB/s; mistrusted: 1 row whose columns contradict each other
rccl_in_place_only.log: 1 runs 3 rows, collective allreduce, ranks 8, dtype fp32, op sum, device cuda, in_place true, ok; 1048576 B 40.5 us 45.31 GB/s; 4194304 B 81.3 us 90.28 GB/s
rccl_ok.log: 1 runs 6 rows, collective allreduce, ranks 8, dtype fp32, op sum, device cuda, in_place false+true, ok; 1048576 B 40.5 us 45.31 GB/s; 4194304 B 80.9 us 90.73 GB/s
)";

std::string collected(const std::string& name) {
  std::ifstream in(GRADMETER_COLLECTED_LOGS "/" + name, std::ios::binary);
  EXPECT_TRUE(in) << name;
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Distinct values in the order of their rows.
std::string values(const core::Run& run, Factor factor) {
  std::vector<std::string> out;
  for (const auto& p : run.points)
    if (const std::string value = text(p, factor); std::ranges::find(out, value) == out.end()) out.push_back(value);
  return fmt::format("{}", fmt::join(out, "+"));
}

std::string row_text(const core::Point& p) {
  const std::string figures = core::is_null(p.metrics[Metric::time_s])
                                  ? "no time"
                                  : fmt::format("{:.6g} us {:.4g} GB/s", number(p, Metric::time_s) * 1e6,
                                                number(p, Metric::busbw_bytes_per_s) * 1e-9);
  return fmt::format("{} B {}", text(p, Factor::size_bytes), figures);
}

std::string summary(const std::string& file, const UserFacts& user_facts) {
  const std::string log = collected(file);
  std::string why = refusal(log, user_facts);
  if (!why.empty()) return "refused: " + why.substr(std::string_view("x.log: ").size());
  const auto all = read(log, user_facts);
  std::string out = fmt::format("{} runs {} rows", all.runs.size(), all.run.points.size());
  if (all.run.points.empty()) return fmt::format("{}; {}", out, all.faults);
  for (const Factor f : {Factor::collective, Factor::ranks, Factor::dtype, Factor::op, Factor::problem, Factor::device,
                         Factor::in_place, Factor::reduction, Factor::cudagraph})
    if (const std::string all_values = values(all.run, f); all_values != "null")
      out += fmt::format(", {} {}", core::name(f), all_values);
  std::vector<std::string_view> statuses;
  for (const auto& p : all.run.points)
    if (const auto status = core::name(p.status); std::ranges::find(statuses, status) == statuses.end())
      statuses.push_back(status);
  out += fmt::format(", {}; {}; {}", fmt::join(statuses, "+"), row_text(all.run.points.front()),
                     row_text(all.run.points.back()));
  return all.faults.empty() ? out : fmt::format("{}; {}", out, all.faults);
}

TEST(CollectedLogs, EachGivesWhatItsLineSays) {
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(GRADMETER_COLLECTED_LOGS))
    if (entry.path().extension() != ".md") files.insert(entry.path().filename().string());
  std::istringstream lines{std::string(table.substr(1))};
  for (std::string line; std::getline(lines, line);) {
    const std::string head = line.substr(0, line.find(": ")), file = head.substr(0, head.find(' '));
    const auto hint = [&](std::string_view flag) {
      const std::size_t at = head.find(flag);
      return at == std::string::npos
                 ? ""
                 : head.substr(at + flag.size(), head.find(' ', at + flag.size()) - at - flag.size());
    };
    const std::string ranks = hint("--ranks ");
    const UserFacts user_facts{
        .ranks = ranks.empty() ? 0 : std::stoll(ranks), .collective = hint("--collective "), .interconnect = {}};
    EXPECT_EQ(head + ": " + summary(file, user_facts), line);
    EXPECT_EQ(files.erase(file), 1u) << file;
  }
  EXPECT_TRUE(files.empty()) << *files.begin() << " has no line";
}

TEST(CollectedLogs, EachWordOfAProblemIsInTheDocuments) {
  std::string meaning(core::factor_table()[static_cast<std::size_t>(Factor::problem)].meaning);
  std::ranges::replace_if(
      meaning, [](char c) { return c != '-' && (c < 'a' || c > 'z'); }, ' ');
  std::istringstream all(meaning);
  const std::set<std::string> known{std::istream_iterator<std::string>(all), {}};
  std::set<std::string> words;  // without their values: root and group of root=3,group=1
  for (const auto& entry : std::filesystem::directory_iterator(GRADMETER_COLLECTED_LOGS)) {
    const std::string log = collected(entry.path().filename().string());
    for (const UserFacts& user_facts : {UserFacts{}, UserFacts{.ranks = 8, .collective = {}, .interconnect = {}}}) {
      if (!refusal(log, user_facts).empty()) continue;
      for (const auto& p : read(log, user_facts).run.points) {
        std::istringstream problem(p.experiment == "allreduce" ? text(p, Factor::problem) : "null");
        for (std::string word; std::getline(problem, word, ',');)
          if (word != "null") words.insert(word.substr(0, word.find('=')));
      }
    }
  }
  for (const std::string& word : words) EXPECT_TRUE(known.contains(word)) << word;
  EXPECT_EQ(words.size(), 14u);
}

TEST(CollectedLogs, AnEncodingChangesNothing) {
  for (const std::string file : {"nccl_ok.log", "imb_oom.log", "kineto_ok.json", "chakra_ok.json"}) {
    const std::string log = collected(file);
    const auto plain = read(log);
    for (const std::string& other : {utf16(log, true), utf16(log, false), utf16(log, true).substr(2),
                                     utf16(log, false).substr(2), "\xEF\xBB\xBF" + log}) {
      const auto same = read(other);
      ASSERT_EQ(same.run.points.size(), plain.run.points.size()) << file;
      for (std::size_t i = 0; i < plain.run.points.size(); ++i) {
        EXPECT_EQ(same.run.points[i].factors, plain.run.points[i].factors);
        EXPECT_EQ(same.run.points[i].metrics, plain.run.points[i].metrics);
      }
    }
  }
}

TEST(CollectedLogs, ACompressedFileIsReadWholeOrRefused) {
  const std::string gz = collected("kineto.json.gz");
  EXPECT_EQ(read(gz).run.points.size(), 2u);
  EXPECT_EQ(refusal(gz.substr(0, gz.size() / 2)), "x.log: its gzip stream is cut; copy the file again");
  std::string damaged = gz;
  damaged[gz.size() / 2] ^= 0x55;
  EXPECT_NE(refusal(damaged).find("its gzip stream is"), std::string::npos);
  EXPECT_NE(refusal(gz + gz).find("line 1: it is no whole JSON"), std::string::npos);  // two members, both read
}

}  // namespace
}  // namespace gradmeter::importers
