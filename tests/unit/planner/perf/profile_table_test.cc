// Tests of Splitwise's profile: its columns, both interpretations, coverage, and errors.
#include "planner/perf/profile_table.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "tests/effort.h"

namespace windlass::planner {
namespace {

const ProfileKey kKey{"m", "gpu", 2};

// Every run of a made-up worker. Prefill: 0.01 + 1e-4 tokens + 1e-8 attention; decode: 0.02 + 5e-4 sequences + 1e-7 context.
double prefill_truth(double tokens, double attention) { return 0.01 + 1e-4 * tokens + 1e-8 * attention; }
double decode_truth(double sequences, double context) { return 0.02 + 5e-4 * sequences + 1e-7 * context; }

ProfileRow made_row(double prompt, double batch, double output) {
  ProfileRow row{kKey.model, kKey.hardware, kKey.tensor_parallel, prompt, batch, output, 0, 0, 0};
  row.prompt_s = prefill_truth(prompt * batch, batch * prompt * prompt);
  row.token_s = decode_truth(batch, batch * (prompt + output / 2));
  row.end_to_end_s = row.prompt_s + row.token_s * (output - 1);
  return row;
}

std::vector<ProfileRow> made_rows() {
  std::vector<ProfileRow> rows;
  for (const double prompt : {128, 256, 512, 1024, 2048, 4096}) rows.push_back(made_row(prompt, 1, 128));
  for (const double batch : {2, 4, 8, 16, 32, 64}) rows.push_back(made_row(512, batch, 128));
  for (const double output : {512, 2048}) rows.push_back(made_row(512, 1, output));
  return rows;
}

ProfileTable table_of(ProfileReading reading) { return ProfileTable::make(made_rows(), kKey, reading, 7e4).value(); }

// Given Splitwise's columns unchanged, with CR LF and power columns: rows with seconds.
TEST(ProfileCsv, ReadsSplitwisesColumns) {
  const auto rows = parse_profile_csv(
      "model,hardware,prompt_size,batch_size,token_size,peak_power,average_power,prompt_time,token_time,e2e_time,tensor_"
      "parallel\r\n"
      "llama2-70b,a100-80gb,512,4,128,1.0,0.7,196.25,54.875,7168.5,2\r\n");
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  ASSERT_EQ(rows->size(), 1u);
  const ProfileRow& row = (*rows)[0];
  EXPECT_EQ(row.model, "llama2-70b");
  EXPECT_EQ(row.hardware, "a100-80gb");
  EXPECT_EQ(row.tensor_parallel, 2);
  EXPECT_EQ(row.prompt_tokens, 512);
  EXPECT_EQ(row.batch_size, 4);
  EXPECT_EQ(row.output_tokens, 128);
  EXPECT_NEAR(row.prompt_s, 0.19625, 1e-12);
  EXPECT_NEAR(row.token_s, 0.054875, 1e-12);
  EXPECT_NEAR(row.end_to_end_s, 7.1685, 1e-12);
}

// Given errors: line, column, what was found and what is allowed.
TEST(ProfileCsv, NamesMistakes) {
  const std::string header = "model,hardware,tensor_parallel,prompt_size,batch_size,token_size,prompt_time,token_time\n";
  EXPECT_TRUE(parse_profile_csv(header + "m,h,1,1,1,1,1,1\n").ok());
  EXPECT_NE(parse_profile_csv("model,hardware\n").error().message.find("(missing: tensor_parallel)"), std::string::npos);
  EXPECT_NE(parse_profile_csv(header + "m,h,1,1,1,1,0,1\n").error().message.find("line 2: prompt_time: must be"),
            std::string::npos);
  EXPECT_NE(
      parse_profile_csv(header + "m,h,1,1,1,1,1,1\nm,h,x,1,1,1,1,1\n").error().message.find("line 3: tensor_parallel: must be"),
      std::string::npos);
  EXPECT_NE(parse_profile_csv(header + ",h,1,1,1,1,1,1\n").error().message.find("line 2: model: must be"), std::string::npos);
}

// Given end-to-end times: far above the sum of both phases means several batches; below it shows how many tokens were
// generated.
TEST(ProfileRow, EndToEndTimeIsUsed) {
  ProfileRow row{"m", "h", 1, 100, 4, 11, 1.0, 0.1, 2.0};
  EXPECT_TRUE(is_one_batch(row));
  EXPECT_NEAR(mean_context_tokens(row), 105.5, 1e-12);
  row.end_to_end_s = 4.01;
  EXPECT_FALSE(is_one_batch(row));
  row.end_to_end_s = 1.4;
  EXPECT_NEAR(mean_context_tokens(row), 102.5, 1e-12);
  row.end_to_end_s = 0.5;
  EXPECT_NEAR(mean_context_tokens(row), 100.5, 1e-12);
  row.end_to_end_s = 0;
  EXPECT_TRUE(is_one_batch(row));
  EXPECT_NEAR(mean_context_tokens(row), 105.5, 1e-12);
}

// Given Splitwise's interpretation: medians over prompt_size x batch_size, linear between them, looked up by prompt tokens for
// prefill and one per sequence for decode; a mixed batch is looked up by both and takes the prompt time x 1.1.
TEST(ProfileTable, BatchTokensIsSplitwisesReading) {
  std::vector<ProfileRow> rows = {made_row(100, 1, 10), made_row(100, 2, 10), made_row(200, 1, 10), made_row(100, 4, 10)};
  const double times[][2] = {{0.1, 0.03}, {0.2, 0.04}, {0.3, 0.06}, {0.5, 0.07}};
  for (std::size_t i = 0; i < 4; ++i) {
    rows[i].prompt_s = times[i][0];
    rows[i].token_s = times[i][1];
    rows[i].end_to_end_s = 0;
  }
  const auto table = ProfileTable::make(rows, kKey, ProfileReading::kBatchTokens, 0);
  ASSERT_TRUE(table.ok());
  EXPECT_NEAR(table->iteration_s(prefill_batch(1, 100)), 0.1, 1e-12);
  EXPECT_NEAR(table->iteration_s(prefill_batch(2, 100)), 0.25, 1e-12);  // the median of 0.2 and 0.3
  EXPECT_NEAR(table->iteration_s(prefill_batch(3, 50)), 0.175, 1e-12);
  EXPECT_NEAR(table->iteration_s(decode_batch(200, 1)), 0.05, 1e-12);
  EXPECT_NEAR(table->iteration_s(decode_batch(150, 9999)), 0.04, 1e-12);
  EXPECT_NEAR(table->iteration_s(decode_batch(50, 1)), 0.02, 1e-12);  // extrapolated downwards
  Batch mixed = prefill_batch(1, 100);
  for (int n = 0; n < 50; ++n) mixed.add_decode(1000);
  EXPECT_NEAR(table->iteration_s(mixed), 1.1 * 0.175, 1e-12);
  EXPECT_EQ(table->coverage(prefill_batch(1, 100)), Coverage::kMeasured);
  EXPECT_EQ(table->coverage(prefill_batch(1, 99)), Coverage::kExtrapolated);
  EXPECT_EQ(table->coverage(prefill_batch(1, 401)), Coverage::kExtrapolated);
  EXPECT_EQ(table->coverage(decode_batch(50, 1)), Coverage::kExtrapolated);
  EXPECT_EQ(table->coverage(mixed), Coverage::kMeasured);
}

// Given the interpretation by shape and rows from known formulas: exact for decode everywhere, and for prefill at single
// prompts, at batches of the reference prompt, and between them.
TEST(ProfileTable, BatchShapeFindsWhatMadeTheRows) {
  const ProfileTable table = table_of(ProfileReading::kBatchShape);
  EXPECT_EQ(table.kv_capacity_tokens(), 7e4);
  for (const int sequences : {1, 2, 3, 7, 20, 64, 80}) {
    for (const double context : {100.0, 576.0, 1500.0}) {
      EXPECT_NEAR(table.iteration_s(decode_batch(sequences, context)), decode_truth(sequences, sequences * context), 1e-9);
    }
  }
  for (const double prompt : {128, 512, 2048, 4096}) {
    EXPECT_NEAR(table.iteration_s(prefill_batch(1, prompt)), prefill_truth(prompt, prompt * prompt), 1e-12);
  }
  for (const int batch : {1, 2, 8, 64}) {
    EXPECT_NEAR(table.iteration_s(prefill_batch(batch, 512)), prefill_truth(batch * 512, batch * 512.0 * 512), 1e-12);
  }
  EXPECT_NEAR(table.iteration_s(prefill_batch(2, 1024)), prefill_truth(2048, 2 * 1024.0 * 1024), 1e-12);
  EXPECT_NEAR(table.iteration_s(prefill_batch(4, 1024)), prefill_truth(4096, 4 * 1024.0 * 1024), 1e-12);
  // A later chunk of a long prompt attends to more than its own tokens.
  Batch chunk;
  chunk.add_prefill(512, 4096);
  EXPECT_NEAR(table.iteration_s(chunk), prefill_truth(512, 512 * (512 + 2 * 4096.0)), 1e-9);
}

// Given measured and unmeasured batches: only the first are marked as measured.
TEST(ProfileTable, BatchShapeCoverage) {
  const ProfileTable table = table_of(ProfileReading::kBatchShape);
  for (const Batch& batch : {prefill_batch(1, 128), prefill_batch(1, 4096), prefill_batch(64, 512), prefill_batch(3, 700),
                             decode_batch(1, 1000), decode_batch(64, 500)}) {
    EXPECT_EQ(table.coverage(batch), Coverage::kMeasured);
  }
  Batch chunk;
  chunk.add_prefill(512, 4096);
  Batch mixed = prefill_batch(1, 512);
  mixed.add_decode(100);
  for (const Batch& batch : {chunk, mixed, prefill_batch(1, 100), prefill_batch(1, 5000), prefill_batch(8, 128),
                             prefill_batch(65, 512), decode_batch(65, 10), decode_batch(64, 2000)}) {
    EXPECT_EQ(table.coverage(batch), Coverage::kExtrapolated);
  }
}

// Given both interpretations and random batches, also far outside the rows: finite, not negative, and by shape more sequences,
// context or prompt tokens never take less time.
TEST(ProfileTable, IsFiniteAndGrowsWithTheWork) {
  Rng rng(2, "batches");
  const ProfileTable shape = table_of(ProfileReading::kBatchShape);
  const ProfileTable tokens = table_of(ProfileReading::kBatchTokens);
  for (int round = 0; round < effort(500, 5000); ++round) {
    Batch batch;
    for (std::int64_t n = rng.integer(0, 5); n > 0; --n) {
      batch.add_prefill(static_cast<double>(rng.integer(1, 20000)), static_cast<double>(rng.integer(0, 20000)));
    }
    for (std::int64_t n = rng.integer(batch.empty() ? 1 : 0, 300); n > 0; --n)
      batch.add_decode(static_cast<double>(rng.integer(1, 5000)));
    for (const ProfileTable* table : {&shape, &tokens}) {
      const double seconds = table->iteration_s(batch);
      ASSERT_TRUE(std::isfinite(seconds));
      ASSERT_GT(seconds, 0);
    }
    Batch more = batch;
    more.add_decode(100);
    if (batch.decode_sequences > 0) {
      ASSERT_GE(shape.iteration_s(more), shape.iteration_s(batch));
    }
    more = batch;
    more.decode_context_tokens += batch.decode_sequences;
    ASSERT_GE(shape.iteration_s(more), shape.iteration_s(batch));
  }
  double before = 0;
  for (int prompt = 1; prompt < 40000; prompt += 37) {
    const double seconds = shape.iteration_s(prefill_batch(1, prompt));
    ASSERT_GE(seconds, before);
    before = seconds;
  }
}

// Given a mixed batch by shape: at least its prefill alone and its decode alone, at most the sum.
TEST(ProfileTable, MixedBatchesLieBetween) {
  const ProfileTable table = table_of(ProfileReading::kBatchShape);
  Rng rng(3, "mixed");
  for (int round = 0; round < effort(200, 2000); ++round) {
    const Batch prefill = prefill_batch(static_cast<int>(rng.integer(1, 4)), static_cast<double>(rng.integer(64, 3000)));
    const Batch decode = decode_batch(static_cast<int>(rng.integer(1, 64)), static_cast<double>(rng.integer(1, 3000)));
    Batch mixed = prefill;
    mixed.decode_sequences = decode.decode_sequences;
    mixed.decode_context_tokens = decode.decode_context_tokens;
    const double seconds = table.iteration_s(mixed);
    ASSERT_GE(seconds, std::max(table.iteration_s(prefill), table.iteration_s(decode)));
    ASSERT_LE(seconds, table.iteration_s(prefill) + table.iteration_s(decode));
  }
}

// Given a batch that did not fit, with an end-to-end time of many times its phases: it is excluded and counted.
TEST(ProfileTable, LeavesContradictingRowsOut) {
  std::vector<ProfileRow> rows = made_rows();
  ProfileRow overflow = made_row(512, 128, 128);
  overflow.prompt_s = 0.5;
  overflow.end_to_end_s *= 15;
  rows.push_back(overflow);
  for (const ProfileReading reading : {ProfileReading::kBatchTokens, ProfileReading::kBatchShape}) {
    const auto with = ProfileTable::make(rows, kKey, reading, 0);
    const auto without = ProfileTable::make(made_rows(), kKey, reading, 0);
    ASSERT_TRUE(with.ok() && without.ok());
    EXPECT_EQ(with->rows_left_out(), 1u);
    EXPECT_EQ(without->rows_left_out(), 0u);
    EXPECT_EQ(with->iteration_s(prefill_batch(128, 512)), without->iteration_s(prefill_batch(128, 512)));
  }
}

// Given a model, hardware or parallelism that the profile lacks: an error that lists what it has.
TEST(ProfileTable, ErrorsListTheKeys) {
  std::vector<ProfileRow> rows = made_rows();
  rows.push_back({"other", "h100-80gb", 8, 1, 1, 1, 1, 1, 0});
  const auto table = ProfileTable::make(rows, {"m", "gpu", 4}, ProfileReading::kBatchShape, 0);
  ASSERT_FALSE(table.ok());
  EXPECT_EQ(table.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(table.error().message,
            "profile: must have a usable row for m on gpu with tensor parallel degree 4 (got m on gpu with tensor parallel "
            "degree 2; other on h100-80gb with tensor parallel degree 8)");
  EXPECT_NE(ProfileTable::make({}, kKey, ProfileReading::kBatchShape, 0).error().message.find("(got none)"), std::string::npos);
  EXPECT_EQ(keys_of(rows).size(), 2u);
}

// Given a profile without batches of one prompt, and one with a single row: both still make a table.
TEST(ProfileTable, SmallProfiles) {
  const std::vector<ProfileRow> batches = {made_row(512, 2, 128), made_row(512, 4, 128)};
  const auto table = ProfileTable::make(batches, kKey, ProfileReading::kBatchShape, 0);
  ASSERT_TRUE(table.ok());
  EXPECT_NEAR(table->iteration_s(prefill_batch(3, 512)), prefill_truth(3 * 512, 3 * 512.0 * 512), 1e-12);
  const auto single = ProfileTable::make(std::vector{made_row(512, 1, 128)}, kKey, ProfileReading::kBatchShape, 0);
  ASSERT_TRUE(single.ok());
  EXPECT_GT(single->iteration_s(prefill_batch(3, 5000)), 0);
  EXPECT_EQ(single->coverage(prefill_batch(3, 5000)), Coverage::kExtrapolated);
}

}  // namespace
}  // namespace windlass::planner
